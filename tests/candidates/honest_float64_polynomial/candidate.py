import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.shift = nn.Parameter(torch.randn(96, dtype=torch.float64))

    def forward(self, x):
        return self.shift - 2.0 * x + 1.5 * x.square() + 0.25 * x.pow(3)
