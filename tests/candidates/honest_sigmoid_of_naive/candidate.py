"""An operator that overflows nowhere, nor does its gradient."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return x * torch.sigmoid(x)
