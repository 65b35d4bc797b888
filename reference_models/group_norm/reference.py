import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    """
    Normalises each group of channels of each image, then scales and shifts every channel.
    """

    def __init__(self, groups, channels, epsilon):
        super().__init__()
        self.groups = groups
        self.epsilon = epsilon
        # Not ones and zeros: leaving them out must show.
        self.weight = nn.Parameter(torch.rand(channels) + 0.5)
        self.bias = nn.Parameter(torch.randn(channels) * 0.5)

    def forward(self, x):
        """
        Args:
            x: tensor of shape (batch_size, channels, height, width).

        Returns:
            Tensor of the same shape.
        """
        return F.group_norm(x, self.groups, self.weight, self.bias, self.epsilon)


batch_size = 64
channels = 512
height = 64
width = 64
groups = 32
epsilon = 1e-5


def get_inputs():
    # Channels around different means and of different scales: only then does it show what is a group, and where
    # epsilon is added.
    scale = 10.0 ** (torch.rand(batch_size, channels, 1, 1) * 3.0 - 2.5)
    x = torch.randn(batch_size, channels, height, width).add_(torch.randn(batch_size, channels, 1, 1))
    return [x.mul_(scale)]


def get_init_inputs():
    return [groups, channels, epsilon]
