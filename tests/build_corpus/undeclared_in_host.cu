//: expect: error
//: functions: ten
//: cpp: torch::Tensor ten(torch::Tensor x);
#include <torch/extension.h>
__global__ void ten_kernel(float* y, int n) { int i = threadIdx.x; if (i < n) y[i] = 10.f; }
torch::Tensor ten(torch::Tensor x) { auto y = torch::emty_like(x); ten_kernel<<<1, 256>>>(y.data_ptr<float>(), x.numel()); return y; }
