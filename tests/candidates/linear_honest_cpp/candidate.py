import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = r"""
#include <ATen/TensorIterator.h>
#include <torch/extension.h>

// relu(z) / d == relu(z / d) for every positive d: the matrix product scales for free, bias included, and
// one pass in place is left.
torch::Tensor forward(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias, double divisor) {
    return at::addmm(bias, x, weight.t(), 1.0 / divisor, 1.0 / divisor).relu_();
}

// The gradient with respect to the matrix product: mask and division in one pass.
torch::Tensor masked(const torch::Tensor& upstream, const torch::Tensor& output, float scale) {
    const torch::Tensor dy = upstream.contiguous();
    torch::Tensor dz = torch::empty_like(dy);
    auto iterator = at::TensorIteratorConfig().add_output(dz).add_const_input(dy).add_const_input(output).build();
    iterator.for_each([scale](char** data, const int64_t*, int64_t size) {
        float* target = reinterpret_cast<float*>(data[0]);
        const float* gradient = reinterpret_cast<const float*>(data[1]);
        const float* y = reinterpret_cast<const float*>(data[2]);
        for (int64_t i = 0; i < size; ++i) {
            // Computed in any case: only then can the compiler vectorise the choice.
            const float value = gradient[i] * scale;
            target[i] = y[i] > 0.0f ? value : 0.0f;
        }
    });
    return dz;
}

std::vector<torch::Tensor> backward(
    const torch::Tensor& upstream, const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& y,
    double divisor) {
    const torch::Tensor dz = masked(upstream, y, static_cast<float>(1.0 / divisor));
    return {dz.mm(weight), dz.t().mm(x), dz.sum(0)};
}
"""

extension = load_inline(
    name="linear_relu_divide_cpp",
    cpp_sources=source,
    functions=["forward", "backward"],
    extra_cflags=["-O3"],
)


class LinearReLUDivide(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, divisor):
        y = extension.forward(x, weight, bias, divisor)
        ctx.save_for_backward(x, weight, y)
        ctx.divisor = divisor
        return y

    @staticmethod
    def backward(ctx, upstream):
        x, weight, y = ctx.saved_tensors
        return *extension.backward(upstream, x, weight, y, ctx.divisor), None


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, divisor):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.divisor = divisor

    def forward(self, x):
        arguments = (x, self.linear.weight, self.linear.bias, self.divisor)
        if not torch.is_grad_enabled():
            return extension.forward(*arguments)
        return LinearReLUDivide.apply(*arguments)
