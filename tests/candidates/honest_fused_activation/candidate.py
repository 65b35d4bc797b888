import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, divisor):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.divisor = divisor

    @torch.no_grad()
    def forward(self, x):
        y = torch._addmm_activation(self.linear.bias, x, self.linear.weight.t(), use_gelu=False)
        return y.div_(self.divisor)
