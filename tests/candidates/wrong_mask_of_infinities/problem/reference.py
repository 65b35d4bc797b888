import torch
import torch.nn as nn


class Model(nn.Module):
    """Scores with minus infinity above the diagonal, over eight."""

    def forward(self, x):
        """x: (rows, rows)."""
        mask = torch.triu(torch.ones(x.shape, device=x.device) * float("-inf"), 1)
        return (x + mask.to(x.dtype)) / 8


rows = 4096


def get_inputs():
    return [torch.randn(rows, rows)]


def get_init_inputs():
    return []
