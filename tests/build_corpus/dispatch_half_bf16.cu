//: expect: fast
//: functions: silu
//: cpp: torch::Tensor silu(torch::Tensor x);
#include <torch/extension.h>

template <typename T>
__global__ void silu_kernel(const T* __restrict__ x, T* __restrict__ y, int64_t n) {
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < n; i += (int64_t)gridDim.x * blockDim.x) {
        float v = static_cast<float>(x[i]);
        y[i] = static_cast<T>(v / (1.0f + expf(-v)));
    }
}

torch::Tensor silu(torch::Tensor x) {
    auto y = torch::empty_like(x);
    auto n = x.numel();
    AT_DISPATCH_FLOATING_TYPES_AND2(at::ScalarType::Half, at::ScalarType::BFloat16, x.scalar_type(), "silu", [&] {
        silu_kernel<scalar_t><<<1024, 256>>>(x.data_ptr<scalar_t>(), y.data_ptr<scalar_t>(), n);
    });
    return y;
}
