import torch
import torch.nn as nn
from torch.nn.utils import parametrize


class Transposed(nn.Module):
    def forward(self, stored):
        return stored.t()

    def right_inverse(self, weight):
        return weight.t().contiguous()


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, divisor):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        parametrize.register_parametrization(self.linear, "weight", Transposed(), unsafe=True)
        self.divisor = divisor

    def forward(self, x):
        with parametrize.cached():
            return torch.relu(self.linear(x)) / self.divisor
