//: expect: fast
//: functions: hinge
//: cpp: torch::Tensor hinge(torch::Tensor x, torch::Tensor t);
#include <torch/extension.h>
using namespace torch;
using at::Tensor;
namespace py = pybind11;

__global__ void hinge_kernel(const float* x, const float* t, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = fmaxf(0.f, 1.f - x[i] * t[i]);
}

Tensor hinge(Tensor x, Tensor t) {
    Tensor y = torch::empty_like(x);
    hinge_kernel<<<(x.numel() + 255) / 256, 256>>>(x.data_ptr<float>(), t.data_ptr<float>(), y.data_ptr<float>(), x.numel());
    return y.mean();
}
