//: expect: refused: the language is c++14
//: functions: four
//: cpp: torch::Tensor four(torch::Tensor x);
//: cuda_flags: -std=c++14
#include <torch/extension.h>
__global__ void four_kernel(float* y, int n) { int i = threadIdx.x + blockIdx.x * blockDim.x; if (i < n) y[i] = 4.f; }
torch::Tensor four(torch::Tensor x) { auto y = torch::empty_like(x); four_kernel<<<(x.numel() + 255) / 256, 256>>>(y.data_ptr<float>(), x.numel()); return y; }
