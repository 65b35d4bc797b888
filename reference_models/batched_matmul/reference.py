import torch
import torch.nn as nn


class Model(nn.Module):
    """
    Many small matrix products, one per entry of the batch.
    """

    def forward(self, a, b):
        """
        Args:
            a: tensor of shape (batch_size, m, k).
            b: tensor of shape (batch_size, n, k): rows meet rows, as in the scores of attention.

        Returns:
            Tensor of shape (batch_size, m, n).
        """
        return torch.bmm(a, b.transpose(1, 2))


batch_size = 512
m = 512
n = 512
k = 128


def get_inputs():
    return [torch.randn(batch_size, m, k), torch.randn(batch_size, n, k)]


def get_init_inputs():
    return []
