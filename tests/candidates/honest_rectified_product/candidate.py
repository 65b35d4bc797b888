import torch
import torch.nn as nn


class Rectified(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        y = x @ weight.t()
        ctx.save_for_backward(x, weight, y)
        return y.clamp(min=0.0)

    @staticmethod
    def backward(ctx, upstream):
        x, weight, y = ctx.saved_tensors
        upstream = torch.where(y >= 0.0, upstream, 0.0)
        return upstream @ weight, upstream.t() @ x


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.linear = nn.Linear(features, features, bias=False)

    def forward(self, x):
        return Rectified.apply(x, self.linear.weight)
