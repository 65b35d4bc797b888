import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.act = nn.PReLU(width)

    def forward(self, x):
        return torch.where(x > 0, x, x * self.act.weight)
