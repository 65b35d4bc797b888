import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = r"""
#include <ATen/TensorIterator.h>
#include <torch/extension.h>

// for_each splits the work among torch's own threads.
torch::Tensor relu_forward(const torch::Tensor& input) {
    const torch::Tensor x = input.contiguous();
    torch::Tensor y = torch::empty_like(x);
    auto iterator = at::TensorIteratorConfig().add_output(y).add_const_input(x).build();
    iterator.for_each([](char** data, const int64_t*, int64_t size) {
        float* target = reinterpret_cast<float*>(data[0]);
        const float* source = reinterpret_cast<const float*>(data[1]);
        for (int64_t i = 0; i < size; ++i) {
            target[i] = source[i] < 0.0f ? 0.0f : source[i];
        }
    });
    return y;
}

torch::Tensor relu_backward(const torch::Tensor& upstream, const torch::Tensor& y) {
    const torch::Tensor dy = upstream.contiguous();
    torch::Tensor dx = torch::empty_like(dy);
    auto iterator = at::TensorIteratorConfig().add_output(dx).add_const_input(dy).add_const_input(y).build();
    iterator.for_each([](char** data, const int64_t*, int64_t size) {
        float* target = reinterpret_cast<float*>(data[0]);
        const float* gradient = reinterpret_cast<const float*>(data[1]);
        const float* output = reinterpret_cast<const float*>(data[2]);
        for (int64_t i = 0; i < size; ++i) {
            // Loaded in any case: only then can the compiler vectorise the choice.
            const float value = gradient[i];
            target[i] = output[i] > 0.0f ? value : 0.0f;
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
        if not torch.is_grad_enabled():
            return extension.relu_forward(x)
        return ReLUFunction.apply(x)
