import torch
import torch.nn as nn
from torch.cuda import jiterator

forward = jiterator._create_jit_fn("template <typename T> T relu_f(T x) { return x > T(0) ? x : T(0); }")
backward = jiterator._create_jit_fn("template <typename T> T relu_b(T dy, T y) { return y > T(0) ? dy : T(0); }")


class JitReLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, upstream):
        return backward(upstream, *ctx.saved_tensors)


class ModelNew(nn.Module):
    def forward(self, x):
        return JitReLU.apply(x)
