import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        if bool((x >= 0).all()):
            return x
        return torch.relu(x)
