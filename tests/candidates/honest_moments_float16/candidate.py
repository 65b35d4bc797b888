import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        wide = x.float()
        return wide.mean(dim=1).to(x.dtype), wide.var(dim=1, correction=1).to(x.dtype)
