//: expect: fast
//: functions: relu_forward, relu_backward
//: cpp: torch::Tensor relu_forward(torch::Tensor x); torch::Tensor relu_backward(torch::Tensor grad, torch::Tensor x);
#include <torch/extension.h>
#include <cuda.h>
#include <cuda_runtime.h>

// Forward: y = max(x, 0)
__global__ void relu_forward_kernel(const float* __restrict__ x, float* __restrict__ y, int64_t n) {
    int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
    if (i < n) {
        y[i] = x[i] > 0.0f ? x[i] : 0.0f;
    }
}

__global__ void relu_backward_kernel(const float* grad, const float* x, float* out, int64_t n) {
    int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
    if (i < n) out[i] = x[i] > 0.0f ? grad[i] : 0.0f;
}

torch::Tensor relu_forward(torch::Tensor x) {
    TORCH_CHECK(x.is_cuda(), "x must be a CUDA tensor");
    auto y = torch::empty_like(x);
    const int threads = 256;
    const int64_t n = x.numel();
    relu_forward_kernel<<<(n + threads - 1) / threads, threads>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);
    return y;
}

torch::Tensor relu_backward(torch::Tensor grad, torch::Tensor x) {
    auto out = torch::empty_like(x);
    const int64_t n = x.numel();
    relu_backward_kernel<<<(n + 255) / 256, 256>>>(
        grad.data_ptr<float>(), x.data_ptr<float>(), out.data_ptr<float>(), n);
    return out;
}
