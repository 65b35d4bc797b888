import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, divisor):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.inverse = nn.Parameter(torch.tensor(divisor).reciprocal(), requires_grad=False)

    def forward(self, x):
        return self.inverse * torch.relu(self.linear(x))
