"""Raises SystemExit in forward."""

import sys

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        sys.exit(0)
        return torch.zeros_like(x)
