import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, features, epsilon):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(features) + 0.5)
        self.bias = nn.Parameter(torch.randn(features) * 0.5)
        self.epsilon = epsilon

    def forward(self, x):
        count = x.shape[-1]
        mean = x.sum(dim=-1, keepdim=True) / count
        variance = (x * x).sum(dim=-1, keepdim=True) / count - mean * mean
        return (x - mean) * torch.rsqrt(variance.clamp(min=0.0) + self.epsilon) * self.weight + self.bias
