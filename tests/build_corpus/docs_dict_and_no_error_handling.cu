//: expect: fast
//: functions: swish
//: error_handling: no
//: cpp: torch::Tensor swish(torch::Tensor x);
#include <torch/extension.h>
__global__ void swish_kernel(const float* x, float* y, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] = x[i] / (1.f + expf(-x[i])); }
torch::Tensor swish(torch::Tensor x) { auto y = torch::empty_like(x); swish_kernel<<<(x.numel() + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel()); return y; }
