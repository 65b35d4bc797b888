//: expect: refused: the flag -march=native
//: functions: half_it
//: cpp: void half_it_launch(const float* x, float* y, int n); torch::Tensor half_it(torch::Tensor x) { auto y = torch::empty_like(x); half_it_launch(x.data_ptr<float>(), y.data_ptr<float>(), x.numel()); return y; }
//: cflags: -O3 -march=native -ffast-math
#include <cuda_runtime.h>
__global__ void half_it_kernel(const float* x, float* y, int n) { int i = threadIdx.x + blockIdx.x * blockDim.x; if (i < n) y[i] = 0.5f * x[i]; }
void half_it_launch(const float* x, float* y, int n) { half_it_kernel<<<(n + 255) / 256, 256>>>(x, y, n); }
