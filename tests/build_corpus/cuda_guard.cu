//: expect: fast
//: functions: hardswish_forward, hardswish_backward
//: cpp: torch::Tensor hardswish_forward(torch::Tensor x); torch::Tensor hardswish_backward(torch::Tensor grad, torch::Tensor x);
//: cuda_flags: -O3 --use_fast_math -lineinfo
#include <torch/extension.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAException.h>
#include <vector>

#define CHECK_CUDA(x) TORCH_CHECK(x.device().is_cuda(), #x " must be a CUDA tensor")
#define CHECK_CONTIGUOUS(x) TORCH_CHECK(x.is_contiguous(), #x " must be contiguous")
#define CHECK_INPUT(x) do { CHECK_CUDA(x); CHECK_CONTIGUOUS(x); } while (0)

namespace {

constexpr int kThreads = 256;

template <typename scalar_t>
__device__ __forceinline__ scalar_t hardswish(scalar_t v) {
    return v * fminf(fmaxf(v + 3.f, 0.f), 6.f) / 6.f;
}

template <typename scalar_t>
__global__ void __launch_bounds__(kThreads) hardswish_forward_kernel(
    const scalar_t* __restrict__ x, scalar_t* __restrict__ y, const int64_t n) {
    for (int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x; i < n;
         i += static_cast<int64_t>(gridDim.x) * blockDim.x) {
        y[i] = hardswish(x[i]);
    }
}

template <typename scalar_t>
__global__ void __launch_bounds__(kThreads) hardswish_backward_kernel(
    const scalar_t* __restrict__ grad, const scalar_t* __restrict__ x, scalar_t* __restrict__ out, const int64_t n) {
    for (int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x; i < n;
         i += static_cast<int64_t>(gridDim.x) * blockDim.x) {
        const scalar_t v = x[i];
        out[i] = v <= -3 ? scalar_t(0) : v >= 3 ? grad[i] : grad[i] * (2 * v + 3) / 6;
    }
}

int blocks_for(int64_t n) {
    const int sms = 132;
    return static_cast<int>(std::min<int64_t>((n + kThreads - 1) / kThreads, 8 * sms));
}

}  // namespace

torch::Tensor hardswish_forward(torch::Tensor x) {
    CHECK_INPUT(x);
    const c10::cuda::OptionalCUDAGuard guard(x.device());
    auto y = torch::empty_like(x);
    AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "hardswish_forward", ([&] {
        hardswish_forward_kernel<scalar_t><<<blocks_for(x.numel()), kThreads, 0, c10::cuda::getCurrentCUDAStream()>>>(
            x.data_ptr<scalar_t>(), y.data_ptr<scalar_t>(), x.numel());
    }));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return y;
}

torch::Tensor hardswish_backward(torch::Tensor grad, torch::Tensor x) {
    CHECK_INPUT(grad);
    CHECK_INPUT(x);
    const c10::cuda::OptionalCUDAGuard guard(x.device());
    auto out = torch::empty_like(x);
    AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "hardswish_backward", ([&] {
        hardswish_backward_kernel<scalar_t><<<blocks_for(x.numel()), kThreads, 0, c10::cuda::getCurrentCUDAStream()>>>(
            grad.data_ptr<scalar_t>(), x.data_ptr<scalar_t>(), out.data_ptr<scalar_t>(), x.numel());
    }));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
