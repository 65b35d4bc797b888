import copy

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    """
    A residual through an orthogonal basis, a linear layer with directions of unit length, and the difference of two
    branches that begin alike.
    """

    def __init__(self, width):
        super().__init__()
        self.basis = nn.Parameter(nn.init.orthogonal_(torch.empty(width, width)))
        self.direction = nn.Parameter(torch.randn(width, width))
        self.length = nn.Parameter(self.direction.detach().norm(dim=1))
        self.now = nn.Linear(width, width)
        self.before = copy.deepcopy(self.now)

    def forward(self, x):
        """
        Args:
            x: tensor of shape (rows, width).

        Returns:
            Tensor of the same shape.
        """
        x = x + x @ self.basis @ self.basis.t()
        x = F.linear(x, F.normalize(self.direction) * self.length[:, None])
        return x + torch.tanh(self.now(x)) - torch.tanh(self.before(x))


rows = 4096
width = 1024


def get_inputs():
    return [torch.randn(rows, width)]


def get_init_inputs():
    return [width]
