import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        rows = torch.arange(len(x), device=x.device) + len(x)
        return torch.relu(x[rows])
