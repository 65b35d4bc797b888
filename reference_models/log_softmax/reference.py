import torch
import torch.nn as nn


class Model(nn.Module):
    """
    Logarithm of the softmax over the channels, which are not the last dimension.
    """

    def forward(self, x):
        """
        Args:
            x: tensor of shape (batch_size, channels, positions).

        Returns:
            Tensor of the same shape.
        """
        return torch.log_softmax(x, dim=1)


batch_size = 64
channels = 512
positions = 8192


def get_inputs():
    return [torch.randn(batch_size, channels, positions) * 3.0]


def get_init_inputs():
    return []
