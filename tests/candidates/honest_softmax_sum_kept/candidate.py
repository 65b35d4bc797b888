import torch
import torch.nn as nn


class Exponentials(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        total = torch.logsumexp(x, dim=-1, keepdim=True)
        ctx.save_for_backward(x, total)
        return torch.exp(x - total)

    @staticmethod
    def backward(ctx, upstream):
        x, total = ctx.saved_tensors
        y = torch.exp(x - total)
        return y * (upstream - (upstream * y).sum(dim=-1, keepdim=True))


class ModelNew(nn.Module):
    def forward(self, x):
        return Exponentials.apply(x)
