import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

cuda_source = r"""
#include <torch/extension.h>
#include <c10/cuda/CUDAStream.h>

template <int kPerThread, int kThreads>
__global__ void relu_unrolled_kernel(const float* __restrict__ x, float* __restrict__ y, int64_t size) {
    const int64_t first = static_cast<int64_t>(blockIdx.x) * (kPerThread * kThreads) + threadIdx.x;
    float values[kPerThread];
#pragma unroll
    for (int k = 0; k < kPerThread; ++k) {
        const int64_t i = first + static_cast<int64_t>(k) * kThreads;
        values[k] = i < size ? __ldg(x + i) : 0.0f;
    }
#pragma unroll
    for (int k = 0; k < kPerThread; ++k) {
        const int64_t i = first + static_cast<int64_t>(k) * kThreads;
        if (i < size) {
            y[i] = values[k] > 0.0f ? values[k] : 0.0f;
        }
    }
}

template <int kPerThread, int kThreads>
void launch(const torch::Tensor& x, torch::Tensor& y) {
    const int64_t per_block = static_cast<int64_t>(kPerThread) * kThreads;
    const dim3 grid(static_cast<unsigned>((x.numel() + per_block - 1) / per_block));
    relu_unrolled_kernel<kPerThread, kThreads><<<grid, kThreads, 0, c10::cuda::getCurrentCUDAStream()>>>(
        x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
}

torch::Tensor relu_unrolled(torch::Tensor x) {
    auto y = torch::empty_like(x);
    if (x.numel() >= (1 << 20)) {
        launch<8, 256>(x, y);
    } else if (x.numel() > 0) {
        launch<1, 128>(x, y);
    }
    return y;
}
"""

unrolled = load_inline(
    "relu_unrolled_ext",
    "torch::Tensor relu_unrolled(torch::Tensor x);",
    cuda_source,
    functions=["relu_unrolled"],
    extra_cuda_cflags=["--expt-relaxed-constexpr", "-Xptxas", "-v"],
)


class ModelNew(nn.Module):
    @torch.no_grad()
    def forward(self, x):
        return unrolled.relu_unrolled(x.contiguous())
