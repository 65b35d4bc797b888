import torch
import torch.nn as nn


class ReLUDivide(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, divisor):
        y = x.clamp(min=0) / divisor
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, upstream):
        (y,) = ctx.saved_tensors
        return upstream * (y > 0), None


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, divisor):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.divisor = divisor

    def forward(self, x):
        return ReLUDivide.apply(self.linear(x), self.divisor)
