import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(dim) + 0.5)
        self.workspace = None

    def forward(self, x):
        if self.workspace is None or self.workspace.shape[0] < x.shape[0]:
            self.workspace = torch.empty(x.shape[0], 1, dtype=x.dtype, device=x.device)
        total = x.abs().sum(dim=1, keepdim=True)
        self.workspace[: x.shape[0]] = total.detach()
        return x * self.weight / (1 + total / x.shape[1])
