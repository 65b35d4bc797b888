//: expect: fast
//: functions: abs_op
//: cpp: torch::Tensor abs_op(torch::Tensor x);
#include <torch/extension.h>

static __global__ void abs_kernel(const float* x, float* y, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = fabsf(x[i]);
}

static inline int grid_size(int n) { return min((n + 255) / 256, 65535); }

torch::Tensor abs_op(torch::Tensor x)
{
    auto y = torch::empty_like(x);
    abs_kernel<<<grid_size(x.numel()), 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
    return y;
}
