import torch
import torch.nn as nn


class Model(nn.Module):
    """
    A residual whose branch is shut when constructed: its factor begins at zero.
    """

    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.gate = nn.Parameter(torch.zeros(1))

    def forward(self, x):
        """
        Args:
            x: tensor of shape (rows, width).

        Returns:
            Tensor of the same shape.
        """
        return x + self.gate * torch.tanh(self.linear(x))


rows = 4096
width = 1024


def get_inputs():
    return [torch.randn(rows, width)]


def get_init_inputs():
    return [width]
