import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(dim) + 0.5)

    def forward(self, x):
        flat = torch.as_strided(x, (x.numel(),), (1,))
        rows = flat.view(x.shape)
        return rows * self.weight / (1 + rows.abs().mean(dim=1, keepdim=True))
