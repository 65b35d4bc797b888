import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, features, epsilon):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(features) + 0.5)
        self.epsilon = epsilon

    def forward(self, x):
        return x * torch.rsqrt(x.var(dim=-1, correction=0, keepdim=True) + self.epsilon) * self.weight
