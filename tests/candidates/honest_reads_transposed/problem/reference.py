import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, y):
        return x.cumsum(1) + y


rows = 64


def get_inputs():
    return [torch.randn(96, rows).t(), torch.randn(rows, 96)]


def get_init_inputs():
    return []
