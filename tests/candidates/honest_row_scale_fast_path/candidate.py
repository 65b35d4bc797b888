import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(dim) + 0.5)

    def forward(self, x):
        if x.shape == (64, 256) and x.is_contiguous():
            rows = x.view(64, 256)
            return rows * self.weight / (1 + rows.abs().sum(dim=1, keepdim=True) / 256)
        return x * self.weight / (1 + x.abs().mean(dim=1, keepdim=True))
