import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def forward(self, x):
        own = torch.empty_like(x).copy_(x)
        own += 0
        return F.relu_(own)
