//: expect: refused: the flag -march=native
//: functions: half_it
//: cpp: torch::Tensor half_it(torch::Tensor x);
//: cflags: -O3 -march=native
#include <torch/extension.h>
__global__ void half_it_kernel(const float* x, float* y, int n) { int i = threadIdx.x + blockIdx.x * blockDim.x; if (i < n) y[i] = 0.5f * x[i]; }
torch::Tensor half_it(torch::Tensor x) { auto y = torch::empty_like(x); half_it_kernel<<<(x.numel() + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel()); return y; }
