import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8, 16))

    def forward(self, x):
        batch, channels, height, width = x.shape
        first = x.as_strided(x.shape, (channels * height * width, height * width, width, 1))
        return torch.einsum("bchw,oc->bohw", first, self.weight)
