import torch
import torch.nn as nn


class Recompute(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        with torch.no_grad():
            return torch.relu(x)

    @staticmethod
    def backward(ctx, upstream):
        (x,) = ctx.saved_tensors
        with torch.enable_grad():
            again = x.detach().requires_grad_()
            torch.autograd.backward(torch.relu(again), upstream)
        return again.grad


class ModelNew(nn.Module):
    def forward(self, x):
        return Recompute.apply(x)
