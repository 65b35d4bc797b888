import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, kernel_size=7, padding=3, groups=channels)

    def forward(self, x):
        height, width = x.shape[2:]
        padded = F.pad(x, (3, 3, 3, 3))
        taps = self.conv.weight.view(1, -1, 7, 7, 1, 1)
        y = self.conv.bias.view(1, -1, 1, 1).expand_as(x)
        for row in range(7):
            for column in range(7):
                y = y + taps[:, :, row, column] * padded[:, :, row : row + height, column : column + width]
        return y
