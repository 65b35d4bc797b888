//: expect: error
//: functions: thirteen
//: cpp: torch::Tensor thirteen(torch::Tensor x);
#include <torch/types.h>
__global__ void thirteen_kernel(float* y, int n) { int i = threadIdx.x; if (i < n) y[i] = 13.f; }
torch::Tensor thirteen(torch::Tensor x) { auto y = torch::empty_like(x); thirteen_kernel<<<1, 256, 0, at::cuda::getCurrentCUDAStream()>>>(y.data_ptr<float>(), x.numel()); return y; }
