import functools

import torch
import torch.nn as nn


@functools.cache
def extensions():
    from torch.utils import cpp_extension

    forward = cpp_extension.load_inline(
        name="late_forward",
        cpp_sources="torch::Tensor run(torch::Tensor x) { return torch::relu(x); }",
        functions=["run"],
    )
    backward = cpp_extension.load_inline(
        name="late_backward",
        cpp_sources="torch::Tensor run(torch::Tensor dy, torch::Tensor y) { return torch::where(y > 0, dy, 0.0); }",
        functions=["run"],
    )
    return forward, backward


class ReLUFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = extensions()[0].run(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        return extensions()[1].run(dy, *ctx.saved_tensors)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        extensions()

    def forward(self, x):
        return ReLUFunction.apply(x)
