import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, features, epsilon):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(features) + 0.5)
        self.bias = nn.Parameter(torch.randn(features) * 0.5)
        self.epsilon = epsilon

    def forward(self, x):
        variance, mean = torch.var_mean(x.detach(), dim=-1, correction=0, keepdim=True)
        return (x - mean) * torch.rsqrt(variance + self.epsilon) * self.weight + self.bias
