import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x, y):
        return (y[:, :, None] + x[:, None, :]).transpose(1, 2)
