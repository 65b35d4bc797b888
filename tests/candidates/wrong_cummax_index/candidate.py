import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        values, indices = torch.cummax(x, dim=1)
        return values, (indices - 1).clamp(min=0)
