import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    """
    Mean cross-entropy between logits and the indices of the right classes.
    """

    def forward(self, logits, targets):
        """
        Args:
            logits: tensor of shape (rows, classes).
            targets: integers of shape (rows,), each from 0 to classes - 1.

        Returns:
            A scalar.
        """
        return F.cross_entropy(logits, targets)


rows = 6144
classes = 16384


def get_inputs():
    # Of another scale each time: a mean over so many rows would hardly depend on them otherwise.
    logits = torch.randn(rows, classes).mul_(torch.rand(()) * 4.0 + 0.5)
    return [logits, torch.randint(classes, (rows,))]


def get_init_inputs():
    return []
