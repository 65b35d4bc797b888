import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, y):
        best = x.topk(3, dim=1).indices
        return y.gather(1, best).sum(1)


rows = 64


def get_inputs():
    return [torch.randn(rows, 96), torch.randn(rows, 96)]


def get_init_inputs():
    return []
