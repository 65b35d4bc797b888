import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    """
    Layer normalisation over the features of each row, with a scale and a shift per feature.
    """

    def __init__(self, features, epsilon):
        super().__init__()
        # Not ones and zeros: leaving them out must show.
        self.weight = nn.Parameter(torch.rand(features) + 0.5)
        self.bias = nn.Parameter(torch.randn(features) * 0.5)
        self.features = features
        self.epsilon = epsilon

    def forward(self, x):
        """
        Args:
            x: tensor of shape (rows, features).

        Returns:
            Tensor of the same shape.
        """
        return F.layer_norm(x, (self.features,), self.weight, self.bias, self.epsilon)


rows = 65536
features = 4096
epsilon = 1e-5


def get_inputs():
    # Rows of very different scale: only then does it show where epsilon is added.
    scale = 10.0 ** (torch.rand(rows, 1) * 3.0 - 2.5)
    return [torch.randn(rows, features).mul_(scale)]


def get_init_inputs():
    return [features, epsilon]
