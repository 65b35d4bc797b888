"""Every element has its own place in memory, where the reference returns an expanded view."""

import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return x.mean(1, keepdim=True).repeat(1, x.shape[1])
