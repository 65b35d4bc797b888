//: expect: fast
//: functions: none
#include <torch/extension.h>
#include <cuda_runtime.h>

__global__ void square_kernel(const float* a, float* b, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) b[i] = a[i] * a[i];
}

static torch::Tensor square(const torch::Tensor& a) {
    torch::Tensor b = torch::empty_like(a);
    square_kernel<<<(a.numel() + 255) / 256, 256>>>(a.data_ptr<float>(), b.data_ptr<float>(), a.numel());
    return b;
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
    m.def("square", &square, "square of every element");
}
