import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    """
    Group norm, then SiLU.
    """

    def __init__(self, channels):
        super().__init__()
        self.norm = nn.GroupNorm(4, channels)

    def forward(self, x):
        """
        Args:
            x: tensor of shape (batch, channels, side, side).

        Returns:
            Tensor of the same shape.
        """
        return F.silu(self.norm(x))


batch = 64
channels = 64
side = 64


def get_inputs():
    return [torch.randn(batch, channels, side, side)]


def get_init_inputs():
    return [channels]
