//: expect: fast
//: functions: mul_half
//: cpp: torch::Tensor mul_half(torch::Tensor a, torch::Tensor b);
//: cuda_flags: -O3 -U__CUDA_NO_HALF_OPERATORS__ -U__CUDA_NO_HALF_CONVERSIONS__
#include <torch/extension.h>
#include <cuda_fp16.h>

__global__ void mul_half_kernel(const __half* a, const __half* b, __half* c, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) c[i] = a[i] * b[i] + __half(1.0f);
}

torch::Tensor mul_half(torch::Tensor a, torch::Tensor b) {
    auto c = torch::empty_like(a);
    int n = a.numel();
    mul_half_kernel<<<(n + 255) / 256, 256>>>(reinterpret_cast<__half*>(a.data_ptr<c10::Half>()),
        reinterpret_cast<__half*>(b.data_ptr<c10::Half>()), reinterpret_cast<__half*>(c.data_ptr<c10::Half>()), n);
    return c;
}
