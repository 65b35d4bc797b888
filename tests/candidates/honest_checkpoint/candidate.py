import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, divisor):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.divisor = divisor

    def block(self, x):
        return torch.relu(self.linear(x)) / self.divisor

    def forward(self, x):
        return checkpoint(self.block, x, use_reentrant=False)
