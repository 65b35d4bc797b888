import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, divisor):
        super().__init__()
        linear = nn.Linear(in_features, out_features)
        self.w = nn.Parameter(linear.weight.detach() / divisor)
        self.b = nn.Parameter(linear.bias.detach() / divisor)
        self.divisor = divisor

    def forward(self, x):
        return torch.relu(nn.functional.linear(x, self.w, self.b)) / self.divisor
