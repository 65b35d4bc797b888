import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

cuda_source = r"""
#include <torch/extension.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

struct Forward {
    __device__ static float apply(float x, float) { return x > 0.0f ? x : 0.0f; }
};

struct Backward {
    __device__ static float apply(float y, float dy) { return y > 0.0f ? dy : 0.0f; }
};

template <typename Operation, bool kBinary>
__global__ void stream_kernel(
    const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ out, int64_t size) {
    const int64_t vectors = size >> 2;
    const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < vectors) {
        const float4 first = __ldcs(reinterpret_cast<const float4*>(a) + i);
        float4 second = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        if constexpr (kBinary) {
            second = __ldcs(reinterpret_cast<const float4*>(b) + i);
        }
        const float4 result = make_float4(
            Operation::apply(first.x, second.x), Operation::apply(first.y, second.y),
            Operation::apply(first.z, second.z), Operation::apply(first.w, second.w));
        __stcs(reinterpret_cast<float4*>(out) + i, result);
    }
    // The last three elements at most.
    if (i < size - (vectors << 2)) {
        const int64_t j = (vectors << 2) + i;
        out[j] = Operation::apply(a[j], kBinary ? b[j] : 0.0f);
    }
}

template <typename Operation, bool kBinary>
void launch(const torch::Tensor& a, const torch::Tensor& b, torch::Tensor& out) {
    const c10::cuda::CUDAGuard guard(a.device());
    const int64_t size = a.numel();
    const unsigned blocks = static_cast<unsigned>(((size + 3) / 4 + 255) / 256);
    if (blocks == 0) {
        return;
    }
    stream_kernel<Operation, kBinary><<<blocks, 256, 0, c10::cuda::getCurrentCUDAStream()>>>(
        a.data_ptr<float>(), kBinary ? b.data_ptr<float>() : nullptr, out.data_ptr<float>(), size);
}

torch::Tensor forward(torch::Tensor x) {
    x = x.contiguous();
    auto y = torch::empty_like(x);
    launch<Forward, false>(x, x, y);
    return y;
}

torch::Tensor backward(torch::Tensor y, torch::Tensor dy) {
    dy = dy.contiguous();
    auto dx = torch::empty_like(dy);
    launch<Backward, true>(y, dy, dx);
    return dx;
}
"""

streaming = load_inline(
    name="relu_streaming",
    cpp_sources="torch::Tensor forward(torch::Tensor x);\ntorch::Tensor backward(torch::Tensor y, torch::Tensor dy);",
    cuda_sources=cuda_source,
    functions=["forward", "backward"],
    extra_cuda_cflags=["-O3", "-std=c++20"],
)


class StreamingReLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = streaming.forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        return streaming.backward(*ctx.saved_tensors, dy)


class ModelNew(nn.Module):
    def forward(self, x):
        return StreamingReLU.apply(x)
