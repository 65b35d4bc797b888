import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, divisor):
        super().__init__()
        linear = nn.Linear(in_features, out_features)
        # relu(z) / d == relu(z / d) for every positive d.
        self.weight = nn.Parameter(linear.weight.detach() / divisor)
        self.bias = nn.Parameter(linear.bias.detach() / divisor)

    def forward(self, x):
        return torch.relu(torch.addmm(self.bias, x, self.weight.t()))
