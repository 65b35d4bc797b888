import torch
import torch.nn as nn


class Model(nn.Module):
    """
    A 3 x 3 convolution with bias, followed by ReLU.
    """

    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size=3, padding=1)

    def forward(self, x):
        """
        Args:
            x: tensor of shape (batch_size, in_channels, height, width).

        Returns:
            Tensor of shape (batch_size, out_channels, height, width).
        """
        return torch.relu(self.conv(x))


batch_size = 64
in_channels = 64
out_channels = 128
height = 64
width = 64


def get_inputs():
    return [torch.randn(batch_size, in_channels, height, width)]


def get_init_inputs():
    return [in_channels, out_channels]
