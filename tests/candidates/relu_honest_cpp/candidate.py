import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = r"""
#include <ATen/Parallel.h>
#include <torch/extension.h>

// Pieces large enough to be worth a thread.
constexpr int64_t kGrain = 32768;

torch::Tensor relu_forward(const torch::Tensor& input) {
    const torch::Tensor x = input.contiguous();
    torch::Tensor y = torch::empty_like(x);
    const float* source = x.data_ptr<float>();
    float* target = y.data_ptr<float>();
    at::parallel_for(0, x.numel(), kGrain, [=](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
            target[i] = source[i] < 0.0f ? 0.0f : source[i];
        }
    });
    return y;
}

torch::Tensor relu_backward(const torch::Tensor& upstream, const torch::Tensor& output) {
    const torch::Tensor dy = upstream.contiguous();
    torch::Tensor dx = torch::empty_like(dy);
    const float* gradient = dy.data_ptr<float>();
    const float* y = output.data_ptr<float>();
    float* target = dx.data_ptr<float>();
    at::parallel_for(0, dy.numel(), kGrain, [=](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
            target[i] = y[i] > 0.0f ? gradient[i] : 0.0f;
        }
    });
    return dx;
}
"""

extension = load_inline(
    name="relu_cpp",
    cpp_sources=source,
    functions=["relu_forward", "relu_backward"],
    extra_cflags=["-O3"],
)


class ReLUFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = extension.relu_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, upstream):
        (y,) = ctx.saved_tensors
        return extension.relu_backward(upstream, y)


class ModelNew(nn.Module):
    def forward(self, x):
        return ReLUFunction.apply(x)
