import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

cuda_source = r"""
#include <torch/extension.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>

namespace cg = cooperative_groups;

constexpr int kTile = 2048;

__global__ void relu_async_copy_kernel(const float* __restrict__ x, float* __restrict__ y, int64_t size) {
    __shared__ alignas(16) float tile[kTile];
    const cg::thread_block block = cg::this_thread_block();
    const int64_t stride = static_cast<int64_t>(gridDim.x) * kTile;
    for (int64_t base = static_cast<int64_t>(blockIdx.x) * kTile; base < size; base += stride) {
        const int64_t left = size - base;
        const unsigned count = static_cast<unsigned>(left < kTile ? left : kTile);
        cg::memcpy_async(block, tile, x + base, sizeof(float) * count);
        cg::wait(block);
        for (unsigned i = block.thread_rank(); i < count; i += block.size()) {
            y[base + i] = fmaxf(tile[i], 0.0f);
        }
        block.sync();
    }
}

torch::Tensor relu_async_copy(torch::Tensor input) {
    auto x = input.contiguous();
    auto y = torch::empty_like(x);
    const int64_t tiles = (x.numel() + kTile - 1) / kTile;
    const int blocks = static_cast<int>(std::min<int64_t>(tiles, 1056));
    relu_async_copy_kernel<<<blocks, 256, 0, c10::cuda::getCurrentCUDAStream()>>>(
        x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return y;
}
"""

extension = load_inline(
    name="relu_async_copy_ext",
    cpp_sources="torch::Tensor relu_async_copy(torch::Tensor input);",
    cuda_sources=cuda_source,
    functions=["relu_async_copy"],
)


class ModelNew(nn.Module):
    def forward(self, x):
        with torch.no_grad():
            return extension.relu_async_copy(x)
