//: expect: fast
//: functions: to_float_relu
//: cpp: torch::Tensor to_float_relu(torch::Tensor x);
#include <torch/types.h>
#include <cuda_bf16.h>

__global__ void bf16_relu(const __nv_bfloat16* __restrict__ x, float* y, int n) {
    int i = threadIdx.x + blockIdx.x * blockDim.x;
    if (i >= n) return;
    float f = __bfloat162float(x[i]);
    y[i] = f > 0 ? f : 0;
}

torch::Tensor to_float_relu(torch::Tensor x) {
    auto y = torch::empty(x.sizes(), x.options().dtype(torch::kFloat32));
    int n = x.numel();
    bf16_relu<<<(n + 127) / 128, 128>>>(reinterpret_cast<const __nv_bfloat16*>(x.data_ptr<at::BFloat16>()), y.data_ptr<float>(), n);
    return y;
}
