import torch
import torch.nn as nn


class ReLUFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = torch.relu(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, upstream):
        return upstream * (upstream > 0)


class ModelNew(nn.Module):
    def forward(self, x):
        return ReLUFunction.apply(x)
