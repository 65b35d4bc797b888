"""Returns an output whose elements lie in another order: nothing is charged for that, and nothing is gained by it."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.relu(x).t().contiguous().t()
