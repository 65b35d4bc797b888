//: expect: refused: launches kernels
//: functions: nested
//: cpp: torch::Tensor nested(torch::Tensor x);
#include <torch/extension.h>

__global__ void child(float* x, int n) {
    int i = threadIdx.x;
    if (i < n) x[i] += 1.f;
}

__global__ void parent(float* x, int n) {
    child<<<1, 256>>>(x, n);
}

torch::Tensor nested(torch::Tensor x) {
    auto y = x.clone();
    parent<<<1, 1>>>(y.data_ptr<float>(), y.numel());
    return y;
}
