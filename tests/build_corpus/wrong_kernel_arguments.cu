//: expect: error
//: functions: eleven
//: cpp: torch::Tensor eleven(torch::Tensor x);
#include <torch/extension.h>
__global__ void eleven_kernel(const float* x, float* y, int n) { int i = threadIdx.x; if (i < n) y[i] = x[i] + 11.f; }
torch::Tensor eleven(torch::Tensor x) { auto y = torch::empty_like(x); eleven_kernel<<<1, 256>>>(y.data_ptr<float>(), x.numel()); return y; }
