import torch
import torch.nn as nn


class LinearReLUDivide(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, divisor):
        y = torch.addmm(bias, x, weight.t()).clamp_(min=0).div_(divisor)
        ctx.save_for_backward(x, weight, y)
        ctx.divisor = divisor
        return y

    @staticmethod
    def backward(ctx, upstream):
        x, weight, y = ctx.saved_tensors
        dz = torch.where(y > 0, upstream / ctx.divisor, 0.0)
        dx = dw = db = None
        if ctx.needs_input_grad[0]:
            dx = dz.mm(weight)
        if ctx.needs_input_grad[1]:
            dw = dz.t().mm(x)
        if ctx.needs_input_grad[2]:
            db = dz.sum(0)
        return dx, dw, db, None


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, divisor):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.divisor = divisor

    def forward(self, x):
        return LinearReLUDivide.apply(x, self.linear.weight, self.linear.bias, self.divisor)
