import torch
import torch.nn as nn


class ReLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, module):
        ctx.module = module
        module.positive = x > 0
        return x.clamp(min=0)

    @staticmethod
    def backward(ctx, upstream):
        return upstream.masked_fill(~ctx.module.positive, 0.0), None


class ModelNew(nn.Module):
    def forward(self, x):
        return ReLU.apply(x, self)
