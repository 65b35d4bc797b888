import torch
import torch.nn as nn


class Model(nn.Module):
    """
    A rectifier with a slope of its own for each feature.
    """

    def __init__(self, width):
        super().__init__()
        self.act = nn.PReLU(width)

    def forward(self, x):
        """
        Args:
            x: tensor of shape (rows, width).

        Returns:
            Tensor of the same shape.
        """
        return self.act(x)


rows = 4096
width = 1024


def get_inputs():
    return [torch.rand(rows, width)]


def get_init_inputs():
    return [width]
