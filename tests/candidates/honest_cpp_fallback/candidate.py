import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>

#if !defined(__aarch64__)
#error "only for 64-bit ARM"
#endif
#include <arm_neon.h>

torch::Tensor relu_neon(torch::Tensor input) {
    auto x = input.contiguous();
    auto y = torch::empty_like(x);
    const int64_t size = x.numel();
    int64_t i = 0;
    for (; i + 4 <= size; i += 4) {
        vst1q_f32(y.data_ptr<float>() + i, vmaxq_f32(vld1q_f32(x.data_ptr<float>() + i), vdupq_n_f32(0.0f)));
    }
    for (; i < size; ++i) {
        y.data_ptr<float>()[i] = std::max(x.data_ptr<float>()[i], 0.0f);
    }
    return y;
}
"""

try:
    neon = load_inline(name="relu_neon_ext", cpp_sources=source, functions=["relu_neon"])
except (ImportError, OSError, RuntimeError) as error:
    print("no extension, torch's operator does it:", error)
    neon = None


class ModelNew(nn.Module):
    def forward(self, x):
        if neon is None or torch.is_grad_enabled():
            return torch.relu(x)
        return neon.relu_neon(x)
