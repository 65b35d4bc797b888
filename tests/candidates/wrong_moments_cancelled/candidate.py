import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        count = x.shape[1]
        mean = x.mean(dim=1)
        return mean, (x.square().mean(dim=1) - mean.square()) * (count / (count - 1))
