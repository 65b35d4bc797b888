import torch
import torch.nn as nn


class ReLUFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clamp(min=0)

    @staticmethod
    def backward(ctx, upstream):
        return None


class ModelNew(nn.Module):
    def forward(self, x):
        return ReLUFunction.apply(x)
