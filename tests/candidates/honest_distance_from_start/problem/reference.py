import torch
import torch.nn as nn


class Model(nn.Module):
    """
    What a layer makes of its input, and the difference from what it made of it when training began.
    """

    def __init__(self, width):
        super().__init__()
        self.layer = nn.Linear(width, width)
        self.register_buffer("start", self.layer.weight.detach().clone())
        self.shift = nn.Parameter(self.layer.bias.detach().clone(), requires_grad=False)

    def forward(self, x):
        now = torch.tanh(self.layer(x))
        return now, now - torch.tanh(nn.functional.linear(x, self.start, self.shift))


rows = 8192
width = 1024


def get_inputs():
    return [torch.randn(rows, width)]


def get_init_inputs():
    return [width]
