import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, divisor):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.divisor = divisor

    @torch.no_grad()
    def forward(self, x):
        high = x.bfloat16()
        low = (x - high).bfloat16()
        weight = self.linear.weight.bfloat16().t()
        y = torch.mm(high, weight, out_dtype=torch.float32) + torch.mm(low, weight, out_dtype=torch.float32)
        return torch.relu(y + self.linear.bias) / self.divisor
