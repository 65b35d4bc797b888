import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8, 16))

    def forward(self, x):
        return torch.einsum("bchw,oc->bohw", x, self.weight)


rows = 64


def get_inputs():
    return [torch.randn(rows, 16, 9, 7).to(memory_format=torch.channels_last)]


def get_init_inputs():
    return []
