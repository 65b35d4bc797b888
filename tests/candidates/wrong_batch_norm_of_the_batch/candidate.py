import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, channels, epsilon):
        super().__init__()
        self.epsilon = epsilon
        self.weight = nn.Parameter(torch.randn(channels))
        self.bias = nn.Parameter(torch.randn(channels) * 0.5)
        self.register_buffer("running_mean", torch.randn(channels) * 0.5)
        self.register_buffer("running_var", 10.0 ** (torch.rand(channels) * 4.0 - 3.0))

    def forward(self, x):
        return torch.relu(F.batch_norm(x, None, None, self.weight, self.bias, training=True, eps=self.epsilon))
