import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(dim) + 0.5)

    def forward(self, x):
        return torch.cat([b * self.weight / (1 + b.abs().mean(dim=1, keepdim=True)) for b in x.split(8)])
