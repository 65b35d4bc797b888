//: expect: error
//: functions: sixteen
//: cpp: torch::Tensor sixteen(torch::Tensor x);
#include <torch/extension.h>
float helper(float v) { return v + 16.f; }
__global__ void sixteen_kernel(float* y, int n) { int i = threadIdx.x; if (i < n) y[i] = helper(y[i]); }
torch::Tensor sixteen(torch::Tensor x) { auto y = x.clone(); sixteen_kernel<<<1, 256>>>(y.data_ptr<float>(), x.numel()); return y; }
