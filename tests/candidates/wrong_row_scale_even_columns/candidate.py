import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(dim) + 0.5)

    def forward(self, x):
        pairs = x.shape[1] // 2 * 2
        mean = x[:, :pairs].abs().sum(dim=1, keepdim=True) / x.shape[1]
        scaled = x[:, :pairs] * self.weight[:pairs] / (1 + mean)
        return torch.cat([scaled, torch.zeros_like(x[:, pairs:])], dim=1)
