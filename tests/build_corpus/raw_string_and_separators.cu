//: expect: fast
//: functions: fill_op
//: cpp: torch::Tensor fill_op(torch::Tensor x);
#include <torch/extension.h>

static const char* kHelp = R"doc(
  __global__ void not_a_kernel() { }  // "quoted" and unbalanced ( {
)doc";
constexpr int kLimit = 1'000'000;  // it's a digit separator
/* a comment with __device__ and a brace { */

__global__ void fill_kernel(float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && i < kLimit) y[i] = '}' == 125 ? 1.f : 0.f;  // '{'
}

torch::Tensor fill_op(torch::Tensor x) {
    TORCH_CHECK(x.numel() < kLimit, kHelp, "it's too large");
    auto y = torch::zeros_like(x);
    fill_kernel<<<(x.numel() + 255) / 256, 256>>>(y.data_ptr<float>(), x.numel());
    return y;
}
