import torch
import torch.nn as nn


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, scale, residual):
        product = x @ weight.t()
        ctx.save_for_backward(x, weight, scale, product)
        return product * scale + residual

    @staticmethod
    def backward(ctx, upstream):
        x, weight, scale, product = ctx.saved_tensors
        return (upstream * scale) @ weight, upstream.t() @ x, (upstream * product).sum(dim=0), upstream


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features, bias=False)
        self.scale = nn.Parameter(torch.randn(out_features))

    def forward(self, x, residual):
        return Scaled.apply(x, self.linear.weight, self.scale, residual)
