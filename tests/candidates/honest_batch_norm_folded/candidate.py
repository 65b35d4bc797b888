import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, channels, epsilon):
        super().__init__()
        self.epsilon = epsilon
        self.weight = nn.Parameter(torch.randn(channels))
        self.bias = nn.Parameter(torch.randn(channels) * 0.5)
        self.register_buffer("running_mean", torch.randn(channels) * 0.5)
        self.register_buffer("running_var", 10.0 ** (torch.rand(channels) * 4.0 - 3.0))

    def forward(self, x):
        scale = self.weight * torch.rsqrt(self.running_var + self.epsilon)
        shift = self.bias - self.running_mean * scale
        return torch.addcmul(shift.view(1, -1, 1, 1), x, scale.view(1, -1, 1, 1)).clamp_(min=0.0)
