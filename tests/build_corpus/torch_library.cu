//: expect: fast
//: functions: none
#include <torch/extension.h>
#include <torch/library.h>

__global__ void axpy_kernel(float a, const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] += a * x[i];
}

at::Tensor axpy(double a, const at::Tensor& x, const at::Tensor& y) {
    auto out = y.clone();
    axpy_kernel<<<(x.numel() + 255) / 256, 256>>>((float)a, x.data_ptr<float>(), out.data_ptr<float>(), x.numel());
    return out;
}

TORCH_LIBRARY(kj_corpus, m) {
    m.def("axpy(float a, Tensor x, Tensor y) -> Tensor");
}

TORCH_LIBRARY_IMPL(kj_corpus, CUDA, m) {
    m.impl("axpy", &axpy);
}
