import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        half = torch.exp(x)
        square = half * half
        return square * square
