import torch
import torch.nn as nn
from torch.autograd.function import once_differentiable


class ReLUFunction(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x.clamp(min=0)

    @staticmethod
    def setup_context(ctx, inputs, output):
        (x,) = inputs
        ctx.save_for_backward(x > 0)

    @staticmethod
    @once_differentiable
    def backward(ctx, upstream):
        (positive,) = ctx.saved_tensors
        return upstream.masked_fill(~positive, 0.0)


class ModelNew(nn.Module):
    def forward(self, x):
        return ReLUFunction.apply(x)
