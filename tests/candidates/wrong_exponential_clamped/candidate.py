"""Exponentials of more than 80 are taken for that of 80."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.exp(x.clamp(max=80.0)) * 2
