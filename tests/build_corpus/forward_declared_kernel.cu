//: expect: fast
//: functions: later
//: cpp: torch::Tensor later(torch::Tensor x);
#include <torch/extension.h>

__global__ void later_kernel(const float* x, float* y, int n);
__device__ float shift(float v, float by = 1.0f);

torch::Tensor later(torch::Tensor x) {
    auto y = torch::empty_like(x);
    later_kernel<<<(x.numel() + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
    return y;
}

__device__ float shift(float v, float by) { return v + by; }

__global__ void later_kernel(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = shift(x[i]);
}
