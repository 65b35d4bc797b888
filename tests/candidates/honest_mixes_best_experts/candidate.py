import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x, y):
        best = x.shape[1] - 1 - x.flip(1).sort(dim=1, descending=True, stable=True).indices[:, :3]
        return y.gather(1, best).sum(1)
