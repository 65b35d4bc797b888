import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, divisor):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.divisor = divisor

    def forward(self, x):
        weight = torch.relu(self.linear.weight)
        return torch.relu(nn.functional.linear(x, weight, self.linear.bias)) / self.divisor
