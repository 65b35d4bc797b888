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
        grouped = x.reshape(batch, channels // self.groups, self.groups, -1)
        variance, mean = torch.var_mean(grouped, dim=(1, 3), correction=0, keepdim=True)
        normalised = ((grouped - mean) * torch.rsqrt(variance + self.epsilon)).view_as(x)
        return normalised * self.weight.view(1, -1, 1, 1) + self.bias.view(1, -1, 1, 1)
