"""Scores above 4 are taken for 4."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.softmax(x.clamp(max=4.0), dim=-1)
