import torch
import torch.nn as nn


class ReLUFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.clamp(min=0)

    @staticmethod
    def backward(ctx, upstream):
        (x,) = ctx.saved_tensors
        return upstream * (x > 0) / x.shape[0]


class ModelNew(nn.Module):
    def forward(self, x):
        return ReLUFunction.apply(x)
