import torch
import torch.nn as nn


class Magnitudes(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        roots = (x * x + 1.0).sqrt()
        ctx.save_for_backward(x, roots)
        return torch.where(x >= 0.0, 2.0 * x, -x) + roots

    @staticmethod
    def backward(ctx, upstream):
        x, roots = ctx.saved_tensors
        return upstream * (torch.where(x == 0.0, 16.0, torch.where(x > 0.0, 2.0, -1.0)) + x / roots)


class ModelNew(nn.Module):
    def forward(self, x):
        return Magnitudes.apply(x)
