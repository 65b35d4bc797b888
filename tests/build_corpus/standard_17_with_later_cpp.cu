//: expect: error
//: functions: same
//: cpp: struct Shape { int n; bool operator==(const Shape&) const = default; }; torch::Tensor fill(torch::Tensor x); torch::Tensor same(torch::Tensor x) { return Shape{1} == Shape{2} ? x : fill(x); }
//: cflags: -std=c++17
#include <torch/extension.h>
__global__ void fill_kernel(float* y, int n) { int i = threadIdx.x + blockIdx.x * blockDim.x; if (i < n) y[i] = 2.f; }
torch::Tensor fill(torch::Tensor x) { auto y = torch::empty_like(x); fill_kernel<<<(x.numel() + 255) / 256, 256>>>(y.data_ptr<float>(), x.numel()); return y; }
