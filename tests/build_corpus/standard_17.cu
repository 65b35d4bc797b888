//: expect: fast
//: functions: leaky_relu
//: cpp: torch::Tensor leaky_relu(torch::Tensor x, double slope);
//: cflags: -O3 -std=c++17
//: cuda_flags: -O3 -std=c++17 --use_fast_math
#include <torch/extension.h>
#include <cuda_fp16.h>

static_assert(__cplusplus == 201703L, "as the flags say, on both sides");

template <bool Vectorized>
__global__ void leaky_relu_kernel(const float* __restrict__ x, float* __restrict__ y, float slope, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if constexpr (Vectorized) {
        if (4 * i + 3 < n) {
            float4 v = reinterpret_cast<const float4*>(x)[i];
            v.x = v.x > 0.f ? v.x : slope * v.x;
            v.y = v.y > 0.f ? v.y : slope * v.y;
            v.z = v.z > 0.f ? v.z : slope * v.z;
            v.w = v.w > 0.f ? v.w : slope * v.w;
            reinterpret_cast<float4*>(y)[i] = v;
        }
    } else if (i < n) {
        y[i] = x[i] > 0.f ? x[i] : slope * x[i];
    }
}

torch::Tensor leaky_relu(torch::Tensor x, double slope) {
    auto y = torch::empty_like(x);
    const int n = x.numel();
    if (n % 4 == 0) {
        leaky_relu_kernel<true><<<(n / 4 + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), slope, n);
    } else {
        leaky_relu_kernel<false><<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), slope, n);
    }
    return y;
}
