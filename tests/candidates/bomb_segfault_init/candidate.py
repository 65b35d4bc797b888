"""Reads address 0 while it is constructed."""

import ctypes

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        ctypes.string_at(0)

    def forward(self, x):
        return torch.relu(x)
