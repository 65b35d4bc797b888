"""Each row in two halves."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        left, right = x.chunk(2, dim=1)
        left = left.cumsum(dim=1)
        return torch.cat([left, left[:, -1:] + right.cumsum(dim=1)], dim=1)
