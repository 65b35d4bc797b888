import torch
import torch.nn as nn


def blocks(x, width):
    start = 0
    while start < x.shape[1]:
        yield x[:, start : start + width]
        start += width


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.cat([block.relu() for block in blocks(x, 1000)], dim=1)
