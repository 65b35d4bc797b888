//: expect: refused: a #line
//: functions: three
//: cpp: torch::Tensor three(torch::Tensor x);
#include <torch/extension.h>
#line 1000 "generated.cu"
__global__ void three_kernel(float* y, int n) { int i = threadIdx.x + blockIdx.x * blockDim.x; if (i < n) y[i] = 3.f; }
torch::Tensor three(torch::Tensor x) { auto y = torch::empty_like(x); three_kernel<<<(x.numel() + 255) / 256, 256>>>(y.data_ptr<float>(), x.numel()); return y; }
