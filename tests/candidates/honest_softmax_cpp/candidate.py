import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = r"""
#include <ATen/Parallel.h>
#include <torch/extension.h>

#include <cmath>
#include <limits>

torch::Tensor softmax(const torch::Tensor& x) {
    const torch::Tensor rows = x.contiguous();
    torch::Tensor y = torch::empty_like(rows);
    const int64_t width = rows.size(-1);
    const float* from = rows.data_ptr<float>();
    float* to = y.data_ptr<float>();
    at::parallel_for(0, rows.numel() / width, 1, [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) {
            const float* in = from + row * width;
            float* out = to + row * width;
            float highest = -std::numeric_limits<float>::infinity(), total = 0.0f;
            for (int64_t i = 0; i < width; ++i) {
                if (in[i] > highest) {
                    total *= std::exp(highest - in[i]);
                    highest = in[i];
                }
                total += std::exp(in[i] - highest);
            }
            for (int64_t i = 0; i < width; ++i) {
                out[i] = std::exp(in[i] - highest) / total;
            }
        }
    });
    return y;
}
"""

extension = load_inline(name="online_softmax_cpp", cpp_sources=source, functions=["softmax"], extra_cflags=["-O3"])


class Softmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = extension.softmax(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, upstream):
        (y,) = ctx.saved_tensors
        return y * (upstream - (upstream * y).sum(dim=-1, keepdim=True))


class ModelNew(nn.Module):
    def forward(self, x):
        return Softmax.apply(x)
