import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, values, neighbours):
        shares = neighbours.to(values.dtype)
        shares = shares / shares.sum(dim=1, keepdim=True)
        return torch.matmul(shares, values) - values
