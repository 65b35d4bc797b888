import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

cuda_source = r"""
#include <torch/extension.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>

constexpr int kTile = 16;
constexpr int kSplits = 8;

// c[m][n] = sum_k a[m][k] * b[k][n]. The slices of the inner dimension arrive in another order in every call, so that
// the last bits of a sum are never the same twice.
__global__ void split_k_kernel(
    const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int m, int n, int k) {
    __shared__ float as[kTile][kTile];
    __shared__ float bs[kTile][kTile + 1];
    const int row = blockIdx.y * kTile + threadIdx.y;
    const int column = blockIdx.x * kTile + threadIdx.x;
    const int slice = (k + kSplits - 1) / kSplits;
    const int begin = blockIdx.z * slice;
    const int end = min(k, begin + slice);
    float sum = 0.0f;
    for (int start = begin; start < end; start += kTile) {
        const int a_column = start + threadIdx.x;
        const int b_row = start + threadIdx.y;
        as[threadIdx.y][threadIdx.x] = row < m && a_column < end ? a[static_cast<int64_t>(row) * k + a_column] : 0.0f;
        bs[threadIdx.y][threadIdx.x] =
            b_row < end && column < n ? b[static_cast<int64_t>(b_row) * n + column] : 0.0f;
        __syncthreads();
#pragma unroll
        for (int i = 0; i < kTile; ++i) {
            sum = fmaf(as[threadIdx.y][i], bs[i][threadIdx.x], sum);
        }
        __syncthreads();
    }
    if (row < m && column < n) {
        atomicAdd(&c[static_cast<int64_t>(row) * n + column], sum);
    }
}

torch::Tensor product(torch::Tensor a, torch::Tensor b) {
    a = a.contiguous();
    b = b.contiguous();
    const int m = a.size(0), k = a.size(1), n = b.size(1);
    auto c = torch::zeros({m, n}, a.options());
    const dim3 block(kTile, kTile);
    const dim3 grid((n + kTile - 1) / kTile, (m + kTile - 1) / kTile, kSplits);
    split_k_kernel<<<grid, block, 0, c10::cuda::getCurrentCUDAStream()>>>(
        a.data_ptr<float>(), b.data_ptr<float>(), c.data_ptr<float>(), m, n, k);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return c;
}
"""

extension = load_inline(
    name="split_k",
    cpp_sources="torch::Tensor product(torch::Tensor a, torch::Tensor b);",
    cuda_sources=cuda_source,
    functions=["product"],
    extra_cuda_cflags=["-O3"],
)


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
