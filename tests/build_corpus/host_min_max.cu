//: expect: fast
//: functions: capped
//: cpp: torch::Tensor capped(torch::Tensor x, int64_t cap);
#include <torch/extension.h>
__global__ void capped_kernel(const float* x, float* y, long long n, unsigned cap) {
    for (long long i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) y[i] = min(x[i], (float)cap);
}
torch::Tensor capped(torch::Tensor x, int64_t cap) {
    auto y = torch::empty_like(x);
    long long n = x.numel();
    int blocks = max(1, min(1024, (int)((n + 255) / 256)));
    unsigned limit = min((unsigned)cap, 1000u);
    float widest = max(1.0f, fminf(2.0f, 3.0f));
    long long most = max(n, 1LL);
    capped_kernel<<<blocks, 256, 0>>>(x.data_ptr<float>(), y.data_ptr<float>(), min(n, most), limit * (unsigned)widest);
    return y;
}
