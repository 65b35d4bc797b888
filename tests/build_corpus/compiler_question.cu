//: expect: refused: which compiler
//: functions: inc
//: cpp: torch::Tensor inc(torch::Tensor x);
#include <torch/extension.h>
#ifdef __NVCC__
#define STEP 1.0f
#else
#define STEP 2.0f
#endif
__global__ void inc_kernel(float* x, int n) { int i = threadIdx.x + blockIdx.x * blockDim.x; if (i < n) x[i] += STEP; }
torch::Tensor inc(torch::Tensor x) { auto y = x.clone(); inc_kernel<<<(x.numel() + 255) / 256, 256>>>(y.data_ptr<float>(), x.numel()); return y; }
