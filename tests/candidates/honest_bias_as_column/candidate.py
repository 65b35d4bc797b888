import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, divisor):
        super().__init__()
        linear = nn.Linear(in_features, out_features)
        self.augmented = nn.Parameter(torch.hstack((linear.weight.data, linear.bias.data[:, None])))
        self.divisor = divisor

    def forward(self, x):
        return F.relu(F.pad(x, (0, 1), value=1.0) @ self.augmented.T) / self.divisor
