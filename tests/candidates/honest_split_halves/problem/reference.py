import torch
import torch.nn as nn


class Model(nn.Module):
    """
    Splits numbers into a high half, which bfloat16 can represent, and a low one, which is left of them.
    """

    def forward(self, x):
        """
        Args:
            x: tensor of shape (rows, width).

        Returns:
            Two tensors of the same shape, whose sum is x.
        """
        high = x.to(torch.bfloat16).float()
        return high, x - high


rows = 4096
width = 4096


def get_inputs():
    return [torch.randn(rows, width)]


def get_init_inputs():
    return []
