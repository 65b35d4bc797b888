import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        best = x.flip(1).sort(dim=1, descending=True, stable=True)
        return best.values[:, :8], x.shape[1] - 1 - best.indices[:, :8]
