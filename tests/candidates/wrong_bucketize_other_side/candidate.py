import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.bucketize(x, torch.linspace(-2.0, 2.0, 33, device=x.device), right=True)
