//: expect: error
//: functions: eight
//: cpp: torch::Tensor eight(torch::Tensor x);
#include <torch/extension.h>
__global__ void eight_kernel(float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        y[i] = 8.f;
}
torch::Tensor eight(torch::Tensor x) { auto y = torch::empty_like(x); eight_kernel<<<1, 256>>>(y.data_ptr<float>(), x.numel()); return y; }
