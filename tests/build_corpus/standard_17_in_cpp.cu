//: expect: fast
//: functions: add_one
//: cpp: static_assert(__cplusplus == 201703L, "as the flags say"); torch::Tensor add_one(torch::Tensor x);
//: cflags: -std=c++17
#include <torch/extension.h>
__global__ void add_one_kernel(const float* x, float* y, int n) { int i = threadIdx.x + blockIdx.x * blockDim.x; if (i < n) y[i] = x[i] + 1.f; }
torch::Tensor add_one(torch::Tensor x) { auto y = torch::empty_like(x); add_one_kernel<<<(x.numel() + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel()); return y; }
