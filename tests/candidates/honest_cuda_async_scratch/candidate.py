import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

cuda_source = r"""
#include <torch/extension.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>

__global__ void relu_kernel(const float* __restrict__ x, float* __restrict__ y, int64_t size) {
    const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < size; i += stride) {
        y[i] = fmaxf(x[i], 0.0f);
    }
}

torch::Tensor relu_through_scratch(torch::Tensor input) {
    auto x = input.contiguous();
    auto y = torch::empty_like(x);
    cudaStream_t stream = c10::cuda::getCurrentCUDAStream();
    const size_t bytes = x.numel() * sizeof(float);
    void* scratch = nullptr;
    C10_CUDA_CHECK(cudaMallocAsync(&scratch, bytes, stream));
    relu_kernel<<<2048, 256, 0, stream>>>(x.data_ptr<float>(), static_cast<float*>(scratch), x.numel());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    C10_CUDA_CHECK(cudaMemcpyAsync(y.data_ptr<float>(), scratch, bytes, cudaMemcpyDeviceToDevice, stream));
    C10_CUDA_CHECK(cudaFreeAsync(scratch, stream));
    return y;
}
"""

scratch = load_inline(
    name="relu_scratch",
    cpp_sources="torch::Tensor relu_through_scratch(torch::Tensor input);",
    cuda_sources=cuda_source,
    functions=["relu_through_scratch"],
)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.op = scratch.relu_through_scratch

    def forward(self, x):
        return self.op(x.detach())
