"""The logarithm of a sum of two exponentials, by the operator that takes the larger one out first."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.logaddexp(x, torch.zeros((), device=x.device, dtype=x.dtype))
