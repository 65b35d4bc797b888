//: expect: refused: the flag -rdc=true
//: functions: id_op
//: cpp: torch::Tensor id_op(torch::Tensor x);
//: cuda_flags: -rdc=true
#include <torch/extension.h>
__global__ void id_kernel(const float* x, float* y, int n) { int i = threadIdx.x + blockIdx.x * blockDim.x; if (i < n) y[i] = x[i]; }
torch::Tensor id_op(torch::Tensor x) { auto y = torch::empty_like(x); id_kernel<<<(x.numel() + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel()); return y; }
