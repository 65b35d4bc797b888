import torch
import torch.nn as nn


class Norm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        norms = x.square().sum(dim=1).sqrt()
        ctx.save_for_backward(x, norms)
        return norms

    @staticmethod
    def backward(ctx, upstream):
        x, norms = ctx.saved_tensors
        factor = torch.where(norms == 0.0, 0.0, upstream / norms)
        return x * factor.unsqueeze(1)


class ModelNew(nn.Module):
    def forward(self, x):
        return Norm.apply(x)
