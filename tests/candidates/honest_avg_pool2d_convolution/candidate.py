import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def forward(self, x):
        channels = x.shape[1]
        ones = torch.ones(channels, 1, 3, 3, dtype=x.dtype, device=x.device)
        total = F.conv2d(x, ones, stride=2, padding=1, groups=channels)
        counted = F.conv2d(torch.ones_like(x[:1, :1]), ones[:1], stride=2, padding=1)
        return total / counted
