//: expect: fast
//: functions: add_then_scale
//: cpp: torch::Tensor add_then_scale(torch::Tensor a, torch::Tensor b, double s);
#include <torch/extension.h>

__global__ void add_kernel(const float* a, const float* b, float* c, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) c[i] = a[i] + b[i];
}

void launch_add(const float* a, const float* b, float* c, int n) { add_kernel<<<(n + 255) / 256, 256>>>(a, b, c, n); }
//: next
#include <cuda_runtime.h>

__global__ void scale_kernel(float* c, float s, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) c[i] *= s;
}

torch::Tensor add_then_scale(torch::Tensor a, torch::Tensor b, double s) {
    auto c = torch::empty_like(a);
    launch_add(a.data_ptr<float>(), b.data_ptr<float>(), c.data_ptr<float>(), a.numel());
    scale_kernel<<<(a.numel() + 255) / 256, 256>>>(c.data_ptr<float>(), s, a.numel());
    return c;
}
