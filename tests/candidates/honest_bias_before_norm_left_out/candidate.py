import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)
        self.bn = nn.BatchNorm2d(channels, track_running_stats=False)

    def forward(self, x):
        return F.relu(self.bn(F.conv2d(x, self.conv.weight, padding=1)))
