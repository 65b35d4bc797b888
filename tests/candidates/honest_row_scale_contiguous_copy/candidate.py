import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(dim) + 0.5)

    def forward(self, x):
        flat = x.contiguous().view(-1)
        rows = flat.view(-1, x.shape[1])
        return rows * self.weight / (1 + rows.abs().mean(dim=1, keepdim=True))
