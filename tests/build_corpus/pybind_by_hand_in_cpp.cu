//: expect: fast
//: functions: none
//: cpp: torch::Tensor cube(torch::Tensor x); PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("cube", &cube, "cube", py::arg("x")); }
#include <torch/extension.h>

__global__ void cube_kernel(const float* a, float* b, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) b[i] = a[i] * a[i] * a[i];
}

torch::Tensor cube(torch::Tensor x) {
    auto y = at::empty_like(x);
    cube_kernel<<<(x.numel() + 127) / 128, 128>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
    return y;
}
