//: expect: fast
//: functions: scale
//: cpp: torch::Tensor scale(const torch::Tensor& x, double factor);
//: cflags: -O3
//: cuda_flags: -O3
#include <torch/extension.h>

template <typename T>
__global__ void scale_kernel(const T* __restrict__ x, T* __restrict__ y, T factor, int64_t n) {
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < n; i += (int64_t)gridDim.x * blockDim.x) {
        y[i] = factor * x[i];
    }
}

torch::Tensor scale(const torch::Tensor& x, double factor) {
    TORCH_CHECK(x.is_cuda() && x.is_contiguous(), "x must be a contiguous CUDA tensor");
    auto y = torch::empty_like(x);
    AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "scale", [&] {
        scale_kernel<scalar_t><<<256, 256>>>(
            x.const_data_ptr<scalar_t>(), y.mutable_data_ptr<scalar_t>(), static_cast<scalar_t>(factor), x.numel());
    });
    return y;
}
