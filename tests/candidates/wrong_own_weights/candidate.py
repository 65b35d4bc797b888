import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, divisor):
        super().__init__()
        self.kernel = nn.Parameter(torch.randn(in_features, out_features) / in_features**0.5)
        self.offset = nn.Parameter(torch.zeros(out_features))
        self.divisor = divisor

    def forward(self, x):
        return torch.relu(x @ self.kernel + self.offset) / self.divisor
