import torch
import torch.nn as nn

WIDTH = 16384


class ModelNew(nn.Module):
    def forward(self, values, places):
        return torch.zeros(values.shape[0], WIDTH, dtype=values.dtype, device=values.device).scatter_(1, places, values)
