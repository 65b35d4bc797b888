import torch
import torch.nn as nn


class ReLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, module):
        module.positive = ctx.positive = x > 0
        return x.clamp(min=0)

    @staticmethod
    def backward(ctx, upstream):
        return upstream.masked_fill(~ctx.positive, 0.0), None


class ModelNew(nn.Module):
    def forward(self, x):
        return ReLU.apply(x, self)
