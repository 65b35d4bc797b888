import torch
import torch.nn as nn


class Oscillation(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.sin(32.0 * x)

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient * torch.cos(32.0 * x) * 32.0


class ModelNew(nn.Module):
    def forward(self, x):
        return Oscillation.apply(x)
