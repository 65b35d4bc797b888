import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8, 16))

    def forward(self, x):
        batch, channels, height, width = x.shape
        pixels = x.as_strided((batch * height * width, channels), (channels, 1))
        return (pixels @ self.weight.t()).view(batch, height, width, 8).permute(0, 3, 1, 2)
