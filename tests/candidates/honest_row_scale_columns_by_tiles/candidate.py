import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(dim) + 0.5)

    def forward(self, x):
        total = sum(tile.abs().sum(dim=1, keepdim=True) for tile in x.split(32, dim=1))
        return x * self.weight / (1 + total / x.shape[1])
