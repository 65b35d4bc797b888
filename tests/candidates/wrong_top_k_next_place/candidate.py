import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        best = x.topk(8, dim=1)
        return best.values, (best.indices + 1) % x.shape[1]
