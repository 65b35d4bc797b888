import functools

import torch
import torch.nn as nn


@functools.lru_cache(maxsize=8)
def scratch(shape, device, dtype):
    return torch.empty(shape, device=device, dtype=torch.bool)


class MaskedReLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        mask = torch.gt(x, 0, out=scratch(tuple(x.shape), x.device, x.dtype))
        ctx.save_for_backward(x)
        return x.mul(mask)

    @staticmethod
    def backward(ctx, upstream):
        (x,) = ctx.saved_tensors
        mask = torch.gt(x, 0, out=scratch(tuple(x.shape), x.device, x.dtype))
        return upstream.mul(mask)


class ModelNew(nn.Module):
    def forward(self, x):
        return MaskedReLU.apply(x)
