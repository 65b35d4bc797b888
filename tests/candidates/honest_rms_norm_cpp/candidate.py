import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = r"""
#include <ATen/Parallel.h>
#include <torch/extension.h>

#include <cmath>

// The normalised rows and the reciprocal of each root mean square.
std::vector<torch::Tensor> rms_norm(const torch::Tensor& x, const torch::Tensor& weight, double epsilon) {
    const torch::Tensor rows = x.contiguous();
    torch::Tensor y = torch::empty_like(rows);
    const int64_t width = rows.size(-1), count = rows.numel() / width;
    torch::Tensor scales = torch::empty({count, 1}, rows.options());
    const float* from = rows.data_ptr<float>();
    const float* gain = weight.data_ptr<float>();
    float* to = y.data_ptr<float>();
    float* scale_of = scales.data_ptr<float>();
    at::parallel_for(0, count, 1, [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) {
            const float* in = from + row * width;
            double squares = 0.0;
            for (int64_t i = 0; i < width; ++i) {
                squares += static_cast<double>(in[i]) * in[i];
            }
            const float scale = static_cast<float>(1.0 / std::sqrt(squares / width + epsilon));
            scale_of[row] = scale;
            for (int64_t i = 0; i < width; ++i) {
                to[row * width + i] = in[i] * scale * gain[i];
            }
        }
    });
    return {y, scales};
}
"""

extension = load_inline(name="rms_norm_cpp", cpp_sources=source, functions=["rms_norm"], extra_cflags=["-O3"])


class RMSNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, epsilon):
        y, scales = extension.rms_norm(x, weight, epsilon)
        ctx.save_for_backward(x, weight, scales)
        return y

    @staticmethod
    def backward(ctx, upstream):
        x, weight, scales = ctx.saved_tensors
        normalised = x * scales
        inner = upstream * weight
        aligned = (inner * normalised).mean(dim=-1, keepdim=True)
        return scales * (inner - normalised * aligned), (upstream * normalised).sum(dim=0), None


class ModelNew(nn.Module):
    def __init__(self, features, epsilon):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(features) + 0.5)
        self.epsilon = epsilon

    def forward(self, x):
        return RMSNorm.apply(x, self.weight, self.epsilon)
