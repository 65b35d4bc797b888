import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = r"""
#include <ATen/Parallel.h>
#include <torch/extension.h>

// Bias, ReLU and division, over the matrix product in place.
torch::Tensor epilogue_forward(torch::Tensor product, const torch::Tensor& bias, double divisor) {
    const int64_t columns = product.size(1);
    const float scale = static_cast<float>(1.0 / divisor);
    const float* shift = bias.data_ptr<float>();
    float* values = product.data_ptr<float>();
    at::parallel_for(0, product.size(0), 8, [=](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) {
            float* line = values + row * columns;
            for (int64_t column = 0; column < columns; ++column) {
                const float value = line[column] + shift[column];
                line[column] = value > 0.0f ? value * scale : 0.0f;
            }
        }
    });
    return product;
}

// The gradient with respect to what goes into the ReLU.
torch::Tensor epilogue_backward(const torch::Tensor& upstream, const torch::Tensor& output, double divisor) {
    const torch::Tensor dy = upstream.contiguous();
    torch::Tensor gradient = torch::empty_like(dy);
    const float scale = static_cast<float>(1.0 / divisor);
    const float* source = dy.data_ptr<float>();
    const float* y = output.data_ptr<float>();
    float* target = gradient.data_ptr<float>();
    at::parallel_for(0, dy.numel(), 32768, [=](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
            target[i] = y[i] > 0.0f ? source[i] * scale : 0.0f;
        }
    });
    return gradient;
}
"""

extension = load_inline(
    name="linear_relu_divide_cpp",
    cpp_sources=source,
    functions=["epilogue_forward", "epilogue_backward"],
    extra_cflags=["-O3"],
)


class LinearReLUDivide(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, divisor):
        y = extension.epilogue_forward(x.mm(weight.t()), bias, divisor)
        ctx.save_for_backward(x, weight, y)
        ctx.divisor = divisor
        return y

    @staticmethod
    def backward(ctx, upstream):
        x, weight, y = ctx.saved_tensors
        gradient = extension.epilogue_backward(upstream, y, ctx.divisor)
        return gradient.mm(weight), gradient.t().mm(x), gradient.sum(0), None


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, divisor):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.divisor = divisor

    def forward(self, x):
        return LinearReLUDivide.apply(x, self.linear.weight, self.linear.bias, self.divisor)
