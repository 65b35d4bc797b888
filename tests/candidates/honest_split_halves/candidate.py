import torch
import torch.nn as nn


class High(torch.autograd.Function):
    @staticmethod
    def forward(_ctx, _x, high):
        return high.clone()

    @staticmethod
    def backward(_ctx, gradient):
        return gradient, None


class Low(torch.autograd.Function):
    @staticmethod
    def forward(_ctx, x, high):
        return x - high

    @staticmethod
    def backward(_ctx, gradient):
        return torch.zeros_like(gradient), None


class ModelNew(nn.Module):
    def forward(self, x):
        bits = x.view(torch.int32)
        odd = (bits >> 16) & 1
        high = ((bits + 0x7FFF + odd) & -0x10000).view(torch.float32)
        return High.apply(x, high), Low.apply(x, high)
