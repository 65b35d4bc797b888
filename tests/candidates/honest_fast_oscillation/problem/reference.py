import torch
import torch.nn as nn


class Model(nn.Module):
    """
    A sine of many periods.
    """

    def __init__(self):
        super().__init__()

    def forward(self, x):
        """
        Args:
            x: tensor of shape (rows, width).

        Returns:
            Tensor of the same shape.
        """
        return torch.sin(32.0 * x)


rows = 4096
width = 4096


def get_inputs():
    return [torch.randn(rows, width)]


def get_init_inputs():
    return []
