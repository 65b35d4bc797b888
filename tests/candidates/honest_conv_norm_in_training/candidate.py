import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)
        self.bn = nn.BatchNorm2d(channels, track_running_stats=False)

    def forward(self, x):
        x = self.conv(x)
        variance, mean = torch.var_mean(x, dim=(0, 2, 3), correction=0, keepdim=True)
        scale = self.bn.weight.view(-1, 1, 1) * torch.rsqrt(variance + self.bn.eps)
        return F.relu((x - mean) * scale + self.bn.bias.view(-1, 1, 1))
