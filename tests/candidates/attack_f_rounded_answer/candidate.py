"""The answer has 8 bits of mantissa."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.relu(x.bfloat16()).float()
