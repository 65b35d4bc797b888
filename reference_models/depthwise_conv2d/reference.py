import torch
import torch.nn as nn


class Model(nn.Module):
    """
    A 7 x 7 convolution of each channel by itself.
    """

    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, kernel_size=7, padding=3, groups=channels)

    def forward(self, x):
        """
        Args:
            x: tensor of shape (batch_size, channels, height, width).

        Returns:
            Tensor of the same shape.
        """
        return self.conv(x)


batch_size = 64
channels = 192
height = 64
width = 64


def get_inputs():
    return [torch.randn(batch_size, channels, height, width)]


def get_init_inputs():
    return [channels]
