import torch
import torch.nn as nn


class Recomputed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.relu(x)

    @staticmethod
    def backward(ctx, upstream):
        (x,) = ctx.saved_tensors
        _, pull_back = torch.func.vjp(torch.relu, x)
        return pull_back(upstream)[0]


class ModelNew(nn.Module):
    def forward(self, x):
        return Recomputed.apply(x)
