//: expect: fast
//: functions: clamp_op
//: cpp: torch::Tensor clamp_op(torch::Tensor x, double lo, double hi);
//: cuda_flags: -DUSE_VECTOR=1
#include <torch/extension.h>

#ifndef USE_VECTOR
#define USE_VECTOR 0
#endif

#if USE_VECTOR
__global__ void clamp_kernel(const float* x, float* y, int n, float lo, float hi) {
    int i = (blockIdx.x * blockDim.x + threadIdx.x) * 2;
#pragma unroll
    for (int k = 0; k < 2; ++k)
        if (i + k < n) y[i + k] = fminf(fmaxf(x[i + k], lo), hi);
}
#else
__global__ void clamp_kernel(const float* x, float* y, int n, float lo, float hi) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = fminf(fmaxf(x[i], lo), hi);
}
#endif

torch::Tensor clamp_op(torch::Tensor x, double lo, double hi) {
    auto y = torch::empty_like(x);
    int n = x.numel();
#if USE_VECTOR
    int items = (n + 1) / 2;
#else
    int items = n;
#endif
    clamp_kernel<<<(items + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), n, lo, hi);
    return y;
}
