import torch
import torch.nn as nn


class Model(nn.Module):
    """
    A linear layer between two layer norms, constructed with ones and zeros throughout but for its weight.
    """

    def __init__(self, width):
        super().__init__()
        self.norm_in = nn.LayerNorm(width)
        self.linear = nn.Linear(width, width)
        nn.init.zeros_(self.linear.bias)
        self.norm_out = nn.LayerNorm(width)

    def forward(self, x):
        """
        Args:
            x: tensor of shape (rows, width).

        Returns:
            Tensor of the same shape.
        """
        return self.norm_out(torch.relu(self.linear(self.norm_in(x))))


rows = 4096
width = 1024


def get_inputs():
    return [torch.randn(rows, width)]


def get_init_inputs():
    return [width]
