import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, divisor):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.divisor = divisor

    def forward(self, x, rows=48):
        y = x.new_empty(x.shape[0], self.linear.out_features)
        for start in range(0, x.shape[0], rows):
            y[start : start + rows] = self.linear(x[start : start + rows])
        return y.relu_() / self.divisor
