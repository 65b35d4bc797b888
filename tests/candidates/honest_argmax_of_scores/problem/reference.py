import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        codes = torch.randn(256, 96)
        self.codes = nn.Parameter(torch.cat([codes, codes]))

    def forward(self, x):
        return (x @ self.codes.t()).argmax(dim=1)


rows = 64


def get_inputs():
    return [torch.randn(rows, 96)]


def get_init_inputs():
    return []
