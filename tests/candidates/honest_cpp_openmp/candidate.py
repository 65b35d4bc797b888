import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>
#include <omp.h>

torch::Tensor relu_forward(torch::Tensor input) {
    auto x = input.contiguous();
    auto y = torch::empty_like(x);
    const float* source = x.data_ptr<float>();
    float* target = y.data_ptr<float>();
    const int64_t size = x.numel();
#pragma omp parallel for simd schedule(static)
    for (int64_t i = 0; i < size; ++i) {
        target[i] = source[i] > 0.0f ? source[i] : 0.0f;
    }
    return y;
}

torch::Tensor relu_backward(torch::Tensor upstream, torch::Tensor output) {
    auto dy = upstream.contiguous();
    auto dx = torch::empty_like(dy);
    const float* gradient = dy.data_ptr<float>();
    const float* y = output.data_ptr<float>();
    float* target = dx.data_ptr<float>();
    const int64_t size = dy.numel();
#pragma omp parallel num_threads(2)
    {
        const int64_t share = (size + omp_get_num_threads() - 1) / omp_get_num_threads();
        const int64_t begin = omp_get_thread_num() * share;
        for (int64_t i = begin; i < std::min(size, begin + share); ++i) {
            target[i] = y[i] > 0.0f ? gradient[i] : 0.0f;
        }
    }
    return dx;
}
"""

extension = load_inline(
    name="relu_openmp",
    cpp_sources=[source],
    functions=["relu_forward", "relu_backward"],
    extra_cflags=["-O3", "-fopenmp"],
    extra_ldflags=["-fopenmp"],
)


class ReLUFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = extension.relu_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, upstream):
        return extension.relu_backward(upstream, *ctx.saved_tensors)


class ModelNew(nn.Module):
    def forward(self, x):
        return ReLUFunction.apply(x)
