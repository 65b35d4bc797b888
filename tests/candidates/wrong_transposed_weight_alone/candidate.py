import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, divisor):
        super().__init__()
        linear = nn.Linear(in_features, out_features)
        self.kernel = nn.Parameter(linear.weight.detach().t().contiguous())
        self.divisor = divisor

    def forward(self, x):
        return torch.relu(x @ self.kernel) / self.divisor
