//: expect: error
//: functions: six
//: cpp: torch::Tensor six(torch::Tensor x);
#include <torch/extension.h>
__global__ void six_kernel(float* y, int n) { int i = threadIdx.x; if (i < n) y[i] = 6.f; }
/* the launcher
torch::Tensor six(torch::Tensor x) { auto y = torch::empty_like(x); six_kernel<<<1, 256>>>(y.data_ptr<float>(), x.numel()); return y; }
