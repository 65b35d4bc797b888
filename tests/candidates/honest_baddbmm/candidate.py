import torch
import torch.nn as nn


class ModelNew(nn.Module):
    blocks = 8

    def __init__(self, in_features, out_features, divisor):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.alpha = 1.0 / divisor

    def forward(self, x):
        out_features, in_features = self.linear.weight.shape
        weight = self.linear.weight.view(self.blocks, -1, in_features).transpose(1, 2)
        bias = self.linear.bias.view(self.blocks, 1, -1)
        z = torch.baddbmm(bias, x.expand(self.blocks, -1, -1), weight, beta=self.alpha, alpha=self.alpha)
        return z.relu().permute(1, 0, 2).reshape(-1, out_features)
