"""The value comes from one function and the gradient from another."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return x + (torch.relu(x) - x).detach()
