import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = r"""
#include <ATen/Parallel.h>
#include <torch/extension.h>

#include <cmath>

std::vector<torch::Tensor> adamw(
    const torch::Tensor& parameters, const torch::Tensor& gradients, const torch::Tensor& first,
    const torch::Tensor& second, double rate, double beta_1, double beta_2, double epsilon, double decay,
    int64_t step) {
    torch::Tensor p = torch::empty_like(parameters), m = torch::empty_like(first), v = torch::empty_like(second);
    const float* p0 = parameters.data_ptr<float>();
    const float* g = gradients.data_ptr<float>();
    const float* m0 = first.data_ptr<float>();
    const float* v0 = second.data_ptr<float>();
    float* p1 = p.data_ptr<float>();
    float* m1 = m.data_ptr<float>();
    float* v1 = v.data_ptr<float>();
    const float b1 = beta_1, b2 = beta_2, c1 = 1.0 - beta_1, c2 = 1.0 - beta_2, keep = 1.0 - rate * decay;
    const float scale = rate / (1.0 - std::pow(beta_1, step));
    const float root = 1.0 / std::sqrt(1.0 - std::pow(beta_2, step)), eps = epsilon;
    at::parallel_for(0, parameters.numel(), 4096, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
            m1[i] = b1 * m0[i] + c1 * g[i];
            v1[i] = b2 * v0[i] + c2 * g[i] * g[i];
            p1[i] = keep * p0[i] - scale * m1[i] / (std::sqrt(v1[i]) * root + eps);
        }
    });
    return {p, m, v};
}
"""

extension = load_inline(name="adamw_cpp", cpp_sources=source, functions=["adamw"], extra_cflags=["-O3"])


class ModelNew(nn.Module):
    def __init__(self, learning_rate, beta_1, beta_2, epsilon, weight_decay):
        super().__init__()
        self.learning_rate = learning_rate
        self.beta_1 = beta_1
        self.beta_2 = beta_2
        self.epsilon = epsilon
        self.weight_decay = weight_decay

    def forward(self, parameters, gradients, first_moment, second_moment, step):
        return tuple(
            extension.adamw(
                parameters, gradients, first_moment, second_moment, self.learning_rate, self.beta_1, self.beta_2,
                self.epsilon, self.weight_decay, step,
            )
        )
