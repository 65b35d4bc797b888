import torch
from torch.utils.cpp_extension import load_inline

from model import Model

cuda_source = """
#include <torch/extension.h>
#include <cuda_runtime.h>

__global__ void relu_forward_kernel(const float* input, float* output, int64_t n) {
    int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (i < n) {
        output[i] = input[i] > 0.0f ? input[i] : 0.0f;
    }
}

torch::Tensor relu_forward(torch::Tensor input) {
    auto output = torch::empty_like(input);
    int64_t n = input.numel();
    int threads = 512;
    int64_t blocks = (n + threads - 1) / threads;
    relu_forward_kernel<<<blocks, threads>>>(input.data_ptr<float>(), output.data_ptr<float>(), n);
    return output;
}

TORCH_LIBRARY(relu_ops, m) {
    m.def("relu_forward(Tensor input) -> Tensor", relu_forward)
    m.impl("relu_forward", torch::kCUDA, &relu_forward;
}
"""

relu_ops = load_inline(
    name="relu_ops",
    cpp_sources="",
    cuda_sources=cuda_source,
    functions=["relu_forward"],
    extra_cuda_cflags=["-O3"],
    verbose=True,
)


class ModelNew(Model):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        return relu_ops.relu_forward(x)
