import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = r"""
#include <algorithm>
#include <torch/extension.h>
#include <vector>

// c[m][n] = sum_k a[m][k] * b[k][n], with the rounding errors of the sums carried along.
torch::Tensor product(torch::Tensor a, torch::Tensor b) {
    a = a.contiguous();
    b = b.contiguous();
    const int64_t m = a.size(0), k = a.size(1), n = b.size(1);
    auto c = torch::empty({m, n}, a.options());
    const float* left = a.data_ptr<float>();
    const float* right = b.data_ptr<float>();
    float* result = c.data_ptr<float>();
    std::vector<float> lost(n);
    for (int64_t row = 0; row < m; ++row) {
        float* sums = result + row * n;
        std::fill(sums, sums + n, 0.0f);
        std::fill(lost.begin(), lost.end(), 0.0f);
        for (int64_t i = 0; i < k; ++i) {
            const float x = left[row * k + i];
            const float* ys = right + i * n;
            for (int64_t column = 0; column < n; ++column) {
                const float term = x * ys[column] - lost[column];
                const float next = sums[column] + term;
                lost[column] = (next - sums[column]) - term;
                sums[column] = next;
            }
        }
    }
    return c;
}
"""

extension = load_inline(name="compensated", cpp_sources=source, functions=["product"], extra_cflags=["-O3"])


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return extension.product(a, b)

    @staticmethod
    def backward(ctx, upstream):
        a, b = ctx.saved_tensors
        return extension.product(upstream, b.mT), extension.product(a.mT, upstream)


class ModelNew(nn.Module):
    def forward(self, a, b):
        return Product.apply(a, b)
