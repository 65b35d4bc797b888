import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    """
    Mean smooth L1 loss: quadratic where the difference is small, linear beyond.
    """

    def __init__(self, beta):
        super().__init__()
        self.beta = beta

    def forward(self, predictions, targets):
        """
        Args:
            predictions: tensor of shape (rows, dim).
            targets: tensor of the same shape.

        Returns:
            A scalar.
        """
        return F.smooth_l1_loss(predictions, targets, beta=self.beta)


rows = 8192
dim = 12288
beta = 0.5


def get_inputs():
    # Of another scale each time: a mean over so many elements would hardly depend on them otherwise.
    predictions = torch.randn(rows, dim).mul_(torch.rand(()) * 2.0 + 0.2)
    return [predictions, torch.randn(rows, dim)]


def get_init_inputs():
    return [beta]
