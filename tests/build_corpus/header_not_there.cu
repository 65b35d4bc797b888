//: expect: error
//: functions: fourteen
//: cpp: torch::Tensor fourteen(torch::Tensor x);
#include <torch/extension.h>
#include "my_kernels.cuh"
torch::Tensor fourteen(torch::Tensor x) { auto y = torch::empty_like(x); my_kernel<<<1, 256>>>(y.data_ptr<float>(), x.numel()); return y; }
