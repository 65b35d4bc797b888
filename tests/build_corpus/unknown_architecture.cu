//: expect: error
//: functions: eighteen
//: cpp: torch::Tensor eighteen(torch::Tensor x);
//: cuda_flags: -arch=sm_12
#include <torch/extension.h>
__global__ void eighteen_kernel(float* y, int n) { int i = threadIdx.x; if (i < n) y[i] = 18.f; }
torch::Tensor eighteen(torch::Tensor x) { auto y = torch::empty_like(x); eighteen_kernel<<<1, 256>>>(y.data_ptr<float>(), x.numel()); return y; }
