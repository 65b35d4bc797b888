//: expect: fast
//: functions: scale_add
//: cpp: torch::Tensor scale_add(torch::Tensor x, torch::Tensor y, double alpha);
#include <torch/extension.h>
#include <cuda_fp16.h>

template <typename scalar_t>
__global__ void scale_add_kernel(const scalar_t* x, const scalar_t* y, scalar_t* out, float alpha, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = static_cast<scalar_t>(static_cast<float>(x[i]) * alpha + static_cast<float>(y[i]));
}

torch::Tensor scale_add(torch::Tensor x, torch::Tensor y, double alpha) {
    auto out = torch::empty_like(x);
    int n = x.numel();
    AT_DISPATCH_FLOATING_TYPES_AND_HALF(x.scalar_type(), "scale_add", [&] {
        scale_add_kernel<scalar_t><<<(n + 255) / 256, 256>>>(
            x.data_ptr<scalar_t>(), y.data_ptr<scalar_t>(), out.data_ptr<scalar_t>(), (float)alpha, n);
    });
    return out;
}
