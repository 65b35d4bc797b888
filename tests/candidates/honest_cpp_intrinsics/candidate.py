import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>
#if defined(__AVX__)
#include <immintrin.h>
#endif

torch::Tensor relu_vectors(torch::Tensor input) {
    const auto x = input.contiguous();
    auto y = torch::empty_like(x);
    const float* source = x.data_ptr<float>();
    float* target = y.data_ptr<float>();
    const int64_t size = x.numel();
    int64_t i = 0;
#if defined(__AVX__)
    const __m256 zero = _mm256_setzero_ps();
    for (; i + 8 <= size; i += 8) {
        _mm256_storeu_ps(target + i, _mm256_max_ps(_mm256_loadu_ps(source + i), zero));
    }
#endif
    for (; i < size; ++i) {
        target[i] = source[i] > 0.0f ? source[i] : 0.0f;
    }
    return y;
}
"""

extension = load_inline(
    name="relu_intrinsics",
    cpp_sources=source,
    functions=["relu_vectors"],
    extra_cflags=["-O3", "-march=native", "-funroll-loops", "-std=c++20"],
)


class ModelNew(nn.Module):
    @torch.no_grad()
    def forward(self, x):
        return extension.relu_vectors(x)
