import torch
import torch.nn as nn


class ReLUFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = x.clamp(min=0)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, upstream):
        (y,) = ctx.saved_tensors
        return upstream.mul_(y > 0)


class ModelNew(nn.Module):
    def forward(self, x):
        return ReLUFunction.apply(x)
