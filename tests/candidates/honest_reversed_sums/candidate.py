"""A backward of its own, computed from the upstream gradient when it is called."""

import torch
import torch.nn as nn


class Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.cumsum(1)

    @staticmethod
    def backward(ctx, upstream):
        return upstream.flip(1).cumsum(1).flip(1)


class ModelNew(nn.Module):
    def forward(self, x):
        return Sum.apply(x)
