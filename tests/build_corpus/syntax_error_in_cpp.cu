//: expect: error
//: functions: seventeen
//: cpp: torch::Tensor seventeen(torch::Tensor x
#include <torch/extension.h>
__global__ void seventeen_kernel(float* y, int n) { int i = threadIdx.x; if (i < n) y[i] = 17.f; }
torch::Tensor seventeen(torch::Tensor x) { auto y = torch::empty_like(x); seventeen_kernel<<<1, 256>>>(y.data_ptr<float>(), x.numel()); return y; }
