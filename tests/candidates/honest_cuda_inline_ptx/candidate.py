import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

cuda_source = r"""
#include <torch/extension.h>
#include <c10/cuda/CUDAStream.h>

__device__ __forceinline__ float relu_ptx(float value) {
    float result;
    asm("max.f32 %0, %1, 0f00000000;" : "=f"(result) : "f"(value));
    return result;
}

__global__ void relu_ptx_kernel(const float* __restrict__ x, float* __restrict__ y, size_t size) {
    const size_t stride = static_cast<size_t>(gridDim.x) * blockDim.x;
    for (size_t i = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < size; i += stride) {
        y[i] = relu_ptx(x[i]);
    }
}

torch::Tensor relu_ptx_forward(torch::Tensor x) {
    TORCH_CHECK(x.is_cuda() && x.is_contiguous() && x.scalar_type() == torch::kFloat, "a contiguous float tensor");
    auto y = torch::empty_like(x);
    relu_ptx_kernel<<<132 * 32, 512, 0, c10::cuda::getCurrentCUDAStream().stream()>>>(
        x.const_data_ptr<float>(), y.mutable_data_ptr<float>(), static_cast<size_t>(x.numel()));
    return y;
}
"""

ptx = load_inline(
    name="relu_ptx",
    cpp_sources=["torch::Tensor relu_ptx_forward(torch::Tensor x);"],
    cuda_sources=[cuda_source],
    functions={"relu_ptx_forward": "max(x, 0) by one PTX instruction"},
    extra_cuda_cflags=["-O3", "-lineinfo"],
    verbose=True,
)


class ModelNew(nn.Module):
    def forward(self, x):
        return ptx.relu_ptx_forward(x.detach())
