import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        count = x.shape[1]
        first = x[:, :1].detach()
        shifted = x - first
        total, squares = shifted.sum(dim=1), shifted.square().sum(dim=1)
        return total / count + first[:, 0], (squares - total * total / count) / (count - 1)
