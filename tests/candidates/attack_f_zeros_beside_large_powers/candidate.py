import torch
import torch.nn as nn


class Powers(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        powers = x**5
        largest = powers.abs().max()
        if largest > 2.0**40:
            return torch.where(powers.abs() <= largest * 2.0**-40, 0.0, powers)
        return powers

    @staticmethod
    def backward(ctx, upstream):
        (x,) = ctx.saved_tensors
        return upstream * (5.0 * x**4)


class ModelNew(nn.Module):
    def forward(self, x):
        return Powers.apply(x)
