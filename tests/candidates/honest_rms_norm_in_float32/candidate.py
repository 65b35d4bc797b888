import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, features, epsilon):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(features) + 0.5)
        self.epsilon = epsilon

    def forward(self, x):
        mean_square = x.float().square().mean(dim=-1, keepdim=True)
        y = x.float() * torch.rsqrt(mean_square + self.epsilon) * self.weight.float()
        return y.to(x.dtype)
