import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

cuda_source = """
#include <torch/extension.h>
#include <cuda_runtime.h>

__global__ void relu_kernel(const char* __restrict__ x, char* __restrict__ y, int bytes) {
    const int stride = gridDim.x * blockDim.x * 16;
    for (int offset = (blockIdx.x * blockDim.x + threadIdx.x) * 16; offset < bytes; offset += stride) {
        float4 value = *reinterpret_cast<const float4*>(x + offset);
        value.x = fmaxf(value.x, 0.0f);
        value.y = fmaxf(value.y, 0.0f);
        value.z = fmaxf(value.z, 0.0f);
        value.w = fmaxf(value.w, 0.0f);
        *reinterpret_cast<float4*>(y + offset) = value;
    }
}

torch::Tensor relu_cuda(torch::Tensor x) {
    auto y = torch::empty_like(x);
    const int bytes = x.numel() * sizeof(float);
    relu_kernel<<<1024, 256>>>(
        reinterpret_cast<const char*>(x.data_ptr<float>()), reinterpret_cast<char*>(y.data_ptr<float>()), bytes);
    return y;
}
"""

relu_ext = load_inline(
    name="relu_bytes",
    cpp_sources="torch::Tensor relu_cuda(torch::Tensor x);",
    cuda_sources=cuda_source,
    functions=["relu_cuda"],
    extra_cuda_cflags=["-O3"],
)


class ModelNew(nn.Module):
    def forward(self, x):
        return relu_ext.relu_cuda(x)
