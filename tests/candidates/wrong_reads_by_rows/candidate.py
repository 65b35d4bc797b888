import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x, y):
        return x.as_strided(x.shape, (x.shape[1], 1)).cumsum(1) + y
