//: expect: fast
//: functions: nineteen
//: cpp: torch::Tensor nineteen(torch::Tensor x);
//: cuda_flags: -gencode=arch=compute_80,code=sm_80 -gencode=arch=compute_90,code=sm_90 -O3 -Xptxas -v --maxrregcount=64
#include <torch/extension.h>
__global__ void nineteen_kernel(float* y, int n) { int i = threadIdx.x + blockIdx.x * blockDim.x; if (i < n) y[i] = 19.f; }
torch::Tensor nineteen(torch::Tensor x) { auto y = torch::empty_like(x); nineteen_kernel<<<(x.numel() + 255) / 256, 256>>>(y.data_ptr<float>(), x.numel()); return y; }
