//: expect: error
//: functions: seven
//: cpp: torch::Tensor seven(torch::Tensor x);
#include <torch/extension.h>
__global__ void seven_kernel(float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x
    if (i < n) y[i] = 7.f;
}
torch::Tensor seven(torch::Tensor x) { auto y = torch::empty_like(x); seven_kernel<<<1, 256>>>(y.data_ptr<float>(), x.numel()); return y; }
