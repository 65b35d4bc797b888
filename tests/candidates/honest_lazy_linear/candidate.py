import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, divisor):
        super().__init__()
        self.linear = nn.LazyLinear(out_features)
        self.linear(torch.empty(1, in_features))
        self.divisor = divisor

    def forward(self, x):
        return torch.relu(self.linear(x)) / self.divisor
