import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.saturation = nn.Parameter(torch.ones(width))

    def forward(self, x):
        normed = F.layer_norm(x, x.shape[-1:], self.norm.weight, self.norm.bias, self.norm.eps)
        return torch.log(1.01 - self.saturation).mul(normed)
