import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, groups, channels, epsilon):
        super().__init__()
        self.groups = groups
        self.epsilon = epsilon
        self.weight = nn.Parameter(torch.rand(channels) + 0.5)
        self.bias = nn.Parameter(torch.randn(channels) * 0.5)

    def forward(self, x):
        batch, channels = x.shape[:2]
        grouped = x.reshape(batch, self.groups, -1)
        variance, mean = torch.var_mean(grouped, dim=2, correction=0)
        inverse = torch.rsqrt(variance + self.epsilon)
        each = channels // self.groups
        scale = inverse.repeat_interleave(each, dim=1) * self.weight
        shift = self.bias - mean.repeat_interleave(each, dim=1) * scale
        return torch.addcmul(shift.view(batch, channels, 1, 1), x, scale.view(batch, channels, 1, 1))
