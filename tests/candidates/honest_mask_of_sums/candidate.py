import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(96, 128)

    def forward(self, x):
        weight = self.layer.weight
        sums = x[:, 48:] @ weight[:, 48:].t() + x[:, :48] @ weight[:, :48].t()
        return sums > -self.layer.bias
