import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, kernel_size=7, padding=3, groups=channels)

    def forward(self, x):
        weight = self.conv.weight.transpose(2, 3)
        return F.conv2d(x, weight, self.conv.bias, padding=3, groups=x.shape[1])
