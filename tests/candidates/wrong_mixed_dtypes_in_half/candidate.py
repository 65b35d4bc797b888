import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(96, dtype=torch.float16))

    def forward(self, x, y):
        return x * self.weight, torch.cumsum(y.half(), 1).float()
