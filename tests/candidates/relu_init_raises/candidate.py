import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, inplace):
        super().__init__()
        self.inplace = inplace

    def forward(self, x):
        return torch.relu(x)
