import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        sign = x / x.abs()
        return x * (sign + 1) / 2
