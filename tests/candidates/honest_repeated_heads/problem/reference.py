import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, queries):
        super().__init__()
        self.queries = queries

    def forward(self, keys):
        return keys.repeat_interleave(self.queries, dim=1)


batch = 16
heads = 8
length = 4096
width = 128


def get_inputs():
    return [torch.randn(batch, heads, length, width)]


def get_init_inputs():
    return [8]
