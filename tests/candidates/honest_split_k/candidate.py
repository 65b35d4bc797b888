import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, divisor):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.divisor = divisor
        self.pieces = 3

    def forward(self, x):
        weights = self.linear.weight.tensor_split(self.pieces, dim=1)
        parts = x.tensor_split(self.pieces, dim=1)
        partial = torch.stack([part @ weight.mT for part, weight in zip(parts, weights)])
        return torch.relu(partial.sum(0) + self.linear.bias) / self.divisor
