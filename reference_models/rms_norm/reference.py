import torch
import torch.nn as nn


class Model(nn.Module):
    """
    Divides each row by its root mean square, and scales each feature.
    """

    def __init__(self, features, epsilon):
        super().__init__()
        # Not ones: leaving it out must show.
        self.weight = nn.Parameter(torch.rand(features) + 0.5)
        self.epsilon = epsilon

    def forward(self, x):
        """
        Args:
            x: tensor of shape (rows, features).

        Returns:
            Tensor of the same shape.
        """
        mean_square = x.square().mean(dim=-1, keepdim=True)
        return x * torch.rsqrt(mean_square + self.epsilon) * self.weight


rows = 32768
features = 4096
epsilon = 1e-5


def get_inputs():
    # Rows of very different scale: only then does it show where epsilon is added.
    scale = 10.0 ** (torch.rand(rows, 1) * 3.0 - 2.5)
    return [torch.randn(rows, features).mul_(scale)]


def get_init_inputs():
    return [features, epsilon]
