//: expect: refused: device code inside a function of the host
//: functions: five
//: cpp: torch::Tensor five(torch::Tensor x);
#include <torch/extension.h>
template <typename F> __global__ void map_kernel(float* y, int n, F f) { int i = threadIdx.x + blockIdx.x * blockDim.x; if (i < n) y[i] = f(y[i]); }
torch::Tensor five(torch::Tensor x) {
    struct Five { __device__ float operator()(float v) const { return v + 5.f; } };
    auto y = x.clone();
    map_kernel<<<(x.numel() + 255) / 256, 256>>>(y.data_ptr<float>(), (int)x.numel(), Five{});
    return y;
}
