//: expect: error
//: functions: negate
//: cpp: torch::Tensor negate(torch::Tensor x);
//: cuda_flags: -std=c++17
#include <torch/extension.h>
template <typename T>
concept Arithmetic = std::is_arithmetic_v<T>;
template <Arithmetic T>
__global__ void negate_kernel(const T* x, T* y, int n) { int i = threadIdx.x + blockIdx.x * blockDim.x; if (i < n) y[i] = -x[i]; }
torch::Tensor negate(torch::Tensor x) { auto y = torch::empty_like(x); negate_kernel<<<(x.numel() + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), int(x.numel())); return y; }
