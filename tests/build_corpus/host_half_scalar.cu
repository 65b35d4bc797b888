//: expect: fast
//: functions: add_scalar_half
//: cpp: torch::Tensor add_scalar_half(torch::Tensor x, double v);
#include <torch/extension.h>
#include <cuda_fp16.h>
__global__ void add_scalar_half_kernel(const __half* x, __half* y, __half v, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = __hadd(x[i], v);
}
torch::Tensor add_scalar_half(torch::Tensor x, double v) {
    auto y = torch::empty_like(x);
    __half h = __float2half((float)v);
    add_scalar_half_kernel<<<(x.numel() + 255) / 256, 256>>>((const __half*)x.data_ptr(), (__half*)y.data_ptr(), h, x.numel());
    return y;
}
