//: expect: fast
//: functions: ones_like_op
//: cpp: torch::Tensor ones_like_op(torch::Tensor x);
#include <torch/extension.h>

__global__ void ones_kernel(float* y, int n) {
    int unused_value = 3;
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 1.0;
}

torch::Tensor ones_like_op(torch::Tensor x) {
    auto y = torch::empty_like(x);
    ones_kernel<<<(x.numel() + 255) / 256, 256>>>(y.data_ptr<float>(), x.numel());
    return y;
}
