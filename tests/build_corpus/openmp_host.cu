//: expect: refused: the flag -fopenmp
//: functions: fill
//: cpp: torch::Tensor fill(torch::Tensor x);
//: cuda_flags: -Xcompiler -fopenmp
#include <torch/extension.h>
__global__ void fill_kernel(float* x, int n) { int i = threadIdx.x + blockIdx.x * blockDim.x; if (i < n) x[i] = 7.f; }
torch::Tensor fill(torch::Tensor x) { auto y = torch::empty_like(x); fill_kernel<<<(x.numel() + 255) / 256, 256>>>(y.data_ptr<float>(), x.numel()); return y; }
