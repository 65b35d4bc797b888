import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

cuda_source = r"""
#include <torch/extension.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>

__global__ void epilogue_kernel(float* __restrict__ z, float divisor, int64_t size) {
    const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < size) {
        z[i] = fmaxf(z[i], 0.0f) / divisor;
    }
}

__global__ void masked_kernel(
    const float* __restrict__ dy, const float* __restrict__ y, float* __restrict__ dz, float divisor, int64_t size) {
    const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < size) {
        dz[i] = y[i] > 0.0f ? dy[i] / divisor : 0.0f;
    }
}

// One warp for each column.
__global__ void column_sum_kernel(const float* __restrict__ dz, float* __restrict__ db, int rows, int columns) {
    const int lane = threadIdx.x & 31;
    const int column = blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5);
    if (column >= columns) {
        return;
    }
    float sum = 0.0f;
    for (int row = lane; row < rows; row += 32) {
        sum += dz[static_cast<int64_t>(row) * columns + column];
    }
#pragma unroll
    for (int offset = 16; offset > 0; offset >>= 1) {
        sum += __shfl_down_sync(0xffffffffu, sum, offset);
    }
    if (lane == 0) {
        db[column] = sum;
    }
}

torch::Tensor forward(torch::Tensor x, torch::Tensor weight, torch::Tensor bias, double divisor) {
    auto z = at::addmm(bias, x, weight.t());
    const int64_t size = z.numel();
    epilogue_kernel<<<(size + 255) / 256, 256, 0, c10::cuda::getCurrentCUDAStream()>>>(
        z.data_ptr<float>(), static_cast<float>(divisor), size);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return z;
}

std::vector<torch::Tensor> backward(
    torch::Tensor dy, torch::Tensor x, torch::Tensor weight, torch::Tensor y, double divisor) {
    dy = dy.contiguous();
    auto dz = torch::empty_like(dy);
    const int64_t size = dy.numel();
    auto stream = c10::cuda::getCurrentCUDAStream();
    masked_kernel<<<(size + 255) / 256, 256, 0, stream>>>(
        dy.data_ptr<float>(), y.data_ptr<float>(), dz.data_ptr<float>(), static_cast<float>(divisor), size);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    const int rows = static_cast<int>(dz.size(0)), columns = static_cast<int>(dz.size(1));
    auto db = torch::empty({columns}, dz.options());
    column_sum_kernel<<<(columns + 7) / 8, 256, 0, stream>>>(
        dz.data_ptr<float>(), db.data_ptr<float>(), rows, columns);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return {dz.mm(weight), dz.t().mm(x), db};
}
"""

cpp_source = """
torch::Tensor forward(torch::Tensor x, torch::Tensor weight, torch::Tensor bias, double divisor);
std::vector<torch::Tensor> backward(
    torch::Tensor dy, torch::Tensor x, torch::Tensor weight, torch::Tensor y, double divisor);
"""

extension = load_inline(
    name="linear_warp_shuffle", cpp_sources=cpp_source, cuda_sources=cuda_source, functions=["forward", "backward"]
)


class LinearReLUDivide(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, divisor):
        y = extension.forward(x, weight, bias, divisor)
        ctx.save_for_backward(x, weight, y)
        ctx.divisor = divisor
        return y

    @staticmethod
    def backward(ctx, dy):
        dx, dw, db = extension.backward(dy, *ctx.saved_tensors, ctx.divisor)
        return dx, dw, db, None


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, divisor):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.divisor = divisor

    def forward(self, x):
        return LinearReLUDivide.apply(x, self.linear.weight, self.linear.bias, self.divisor)
