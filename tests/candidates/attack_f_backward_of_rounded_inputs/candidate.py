"""The backward pass has inputs of 14 bits: who moves them by the tolerance sees gradients move as far."""

import torch
import torch.nn as nn


class Oscillation(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        mantissa, exponent = torch.frexp(x)
        rounded = torch.ldexp(torch.round(mantissa * 2.0**14) / 2.0**14, exponent)
        ctx.save_for_backward(torch.where(x.abs() < 4.0, rounded, x))
        return torch.sin(32.0 * x)

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient * torch.cos(32.0 * x) * 32.0


class ModelNew(nn.Module):
    def forward(self, x):
        return Oscillation.apply(x)
