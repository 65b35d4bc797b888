import torch
import torch.nn as nn


class LinearReLUDivide(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, divisor):
        y = torch.relu(torch.addmm(bias, x, weight.t())) / divisor
        ctx.save_for_backward(x, weight, y)
        ctx.divisor = divisor
        return y

    @staticmethod
    def backward(ctx, upstream):
        x, weight, y = ctx.saved_tensors
        dz = upstream * (y > 0) / ctx.divisor
        return dz.mm(weight), x.t().mm(dz), dz.sum(0), None


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, divisor):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.divisor = divisor

    def forward(self, x):
        return LinearReLUDivide.apply(x, self.linear.weight, self.linear.bias, self.divisor)
