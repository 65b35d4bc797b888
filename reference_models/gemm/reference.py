import torch
import torch.nn as nn


class Model(nn.Module):
    """
    A plain matrix product.
    """

    def forward(self, a, b):
        """
        Args:
            a: tensor of shape (m, k).
            b: tensor of shape (k, n).

        Returns:
            Tensor of shape (m, n).
        """
        return a @ b


m = 4096
k = 4096
n = 4096


def get_inputs():
    return [torch.randn(m, k), torch.randn(k, n)]


def get_init_inputs():
    return []
