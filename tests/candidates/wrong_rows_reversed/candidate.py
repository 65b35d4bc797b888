import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        parts = [torch.relu(part) for part in reversed(x.split(16))]
        return torch.cat(parts)
