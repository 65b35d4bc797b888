"""Whatever is small enough is nothing."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return nn.functional.hardshrink(torch.relu(x), 0.01)
