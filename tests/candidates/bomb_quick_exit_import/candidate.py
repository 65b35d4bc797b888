"""Ends with os._exit(0) while it is imported."""

import os

import torch
import torch.nn as nn
os._exit(0)


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.zeros_like(x)
