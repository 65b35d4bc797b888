//: expect: error
//: functions: negate
//: cpp: torch::Tensor negate(torch::Tensor x);
//: cuda_flags: -O3 -std=c++17
#include <torch/extension.h>
enum class Mode { Plain, Vector };
__global__ void negate_kernel(const float* x, float* y, int n) { int i = threadIdx.x + blockIdx.x * blockDim.x; if (i < n) y[i] = -x[i]; }
torch::Tensor negate(torch::Tensor x) {
    using enum Mode;
    const Mode mode = x.numel() % 4 ? Plain : Vector;
    TORCH_CHECK(mode == Plain || mode == Vector);
    auto y = torch::empty_like(x);
    negate_kernel<<<(x.numel() + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), int(x.numel()));
    return y;
}
