//: expect: error
//: functions: fifteen
//: cpp: torch::Tensor fifteen(torch::Tensor x);
#include <torch/extension.h>
#include <cuda_fp16.h>
__global__ void fifteen_kernel(__half* y, int n) { int i = threadIdx.x; if (i < n) y[i] = y[i] * y[i]; }
torch::Tensor fifteen(torch::Tensor x) { auto y = x.clone(); fifteen_kernel<<<1, 256>>>(reinterpret_cast<__half*>(y.data_ptr<at::Half>()), x.numel()); return y; }
