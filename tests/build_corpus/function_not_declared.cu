//: expect: error
//: functions: twelve
//: cpp:
#include <torch/extension.h>
__global__ void twelve_kernel(float* y, int n) { int i = threadIdx.x; if (i < n) y[i] = 12.f; }
torch::Tensor twelve(torch::Tensor x) { auto y = torch::empty_like(x); twelve_kernel<<<1, 256>>>(y.data_ptr<float>(), x.numel()); return y; }
