//: expect: fast
//: functions: gelu_forward, gelu_backward
//: cpp: torch::Tensor gelu_forward(torch::Tensor x); torch::Tensor gelu_backward(torch::Tensor g, torch::Tensor x);
#include <torch/extension.h>
#include <cuda.h>
#include <cuda_runtime.h>
#include <vector>

#define CHECK_CUDA(x) TORCH_CHECK(x.device().is_cuda(), #x " must be a CUDA tensor")
#define CHECK_CONTIGUOUS(x) TORCH_CHECK(x.is_contiguous(), #x " must be contiguous")
#define CHECK_INPUT(x) CHECK_CUDA(x); CHECK_CONTIGUOUS(x)

template <typename scalar_t>
__device__ __forceinline__ scalar_t gelu(scalar_t x) {
    return scalar_t(0.5) * x * (scalar_t(1) + erf(x * scalar_t(0.70710678118654752440)));
}

template <typename scalar_t>
__global__ void gelu_forward_kernel(const scalar_t* __restrict__ x, scalar_t* __restrict__ y, size_t n) {
    const size_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = gelu(x[i]);
}

template <typename scalar_t>
__global__ void gelu_backward_kernel(const scalar_t* g, const scalar_t* x, scalar_t* out, size_t n) {
    const size_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        scalar_t v = x[i];
        scalar_t cdf = scalar_t(0.5) * (scalar_t(1) + erf(v * scalar_t(0.70710678118654752440)));
        scalar_t pdf = exp(-scalar_t(0.5) * v * v) * scalar_t(0.39894228040143267794);
        out[i] = g[i] * (cdf + v * pdf);
    }
}

torch::Tensor gelu_forward(torch::Tensor x) {
    CHECK_INPUT(x);
    auto y = torch::empty_like(x);
    const auto n = x.numel();
    const dim3 blocks((n + 1023) / 1024);
    AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "gelu_forward", ([&] {
        gelu_forward_kernel<scalar_t><<<blocks, 1024>>>(x.data_ptr<scalar_t>(), y.data_ptr<scalar_t>(), n);
    }));
    return y;
}

torch::Tensor gelu_backward(torch::Tensor g, torch::Tensor x) {
    CHECK_INPUT(g);
    CHECK_INPUT(x);
    auto out = torch::empty_like(x);
    const auto n = x.numel();
    AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "gelu_backward", ([&] {
        gelu_backward_kernel<scalar_t><<<(n + 1023) / 1024, 1024>>>(
            g.data_ptr<scalar_t>(), x.data_ptr<scalar_t>(), out.data_ptr<scalar_t>(), n);
    }));
    return out;
}
