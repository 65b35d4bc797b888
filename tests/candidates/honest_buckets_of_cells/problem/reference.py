import torch
import torch.nn as nn


class Model(nn.Module):
    """
    The bucket, of 2**16, of the cell that a point is in.
    """

    def forward(self, x):
        cell = torch.floor(torch.tanh(x.sum(dim=1) * 0.1) * 64.0).to(torch.int64)
        return (cell * 40503 ^ (cell + 7) * 27449) % 65536


rows = 65536


def get_inputs():
    return [torch.randn(rows, 16)]


def get_init_inputs():
    return []
