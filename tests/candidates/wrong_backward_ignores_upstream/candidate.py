import torch
import torch.nn as nn


class ReLUFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.relu(x)

    @staticmethod
    def backward(ctx, upstream):
        (x,) = ctx.saved_tensors
        return (x > 0).to(x.dtype)


class ModelNew(nn.Module):
    def forward(self, x):
        return ReLUFunction.apply(x)
