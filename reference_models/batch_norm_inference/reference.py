import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    """
    Batch normalisation with the statistics of a training that is over, then ReLU.
    """

    def __init__(self, channels, epsilon):
        super().__init__()
        self.epsilon = epsilon
        self.weight = nn.Parameter(torch.randn(channels))
        self.bias = nn.Parameter(torch.randn(channels) * 0.5)
        self.register_buffer("running_mean", torch.randn(channels) * 0.5)
        # Some channels hardly vary: there it shows where epsilon is added.
        self.register_buffer("running_var", 10.0 ** (torch.rand(channels) * 4.0 - 3.0))

    def forward(self, x):
        """
        Args:
            x: tensor of shape (batch_size, channels, height, width).

        Returns:
            Tensor of the same shape.
        """
        normalised = F.batch_norm(
            x, self.running_mean, self.running_var, self.weight, self.bias, training=False, eps=self.epsilon
        )
        return torch.relu(normalised)


batch_size = 128
channels = 256
height = 64
width = 64
epsilon = 1e-3


def get_inputs():
    return [torch.randn(batch_size, channels, height, width)]


def get_init_inputs():
    return [channels, epsilon]
