"""Takes its time."""

import time

import torch
import torch.nn as nn
time.sleep(3600)


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.zeros_like(x)
