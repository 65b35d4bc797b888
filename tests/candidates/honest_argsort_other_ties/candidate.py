import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return x.shape[1] - 1 - x.flip(1).argsort(dim=1, stable=True)
