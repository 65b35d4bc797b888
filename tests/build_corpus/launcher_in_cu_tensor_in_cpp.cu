//: expect: fast
//: functions: mse_loss
//: cpp: void mse_launcher(const float* a, const float* b, float* out, int n); torch::Tensor mse_loss(torch::Tensor a, torch::Tensor b) { TORCH_CHECK(a.sizes() == b.sizes()); auto out = torch::zeros({}, a.options()); mse_launcher(a.data_ptr<float>(), b.data_ptr<float>(), out.data_ptr<float>(), a.numel()); return out; }
#include <cuda_runtime.h>

__global__ void mse_kernel(const float* __restrict__ a, const float* __restrict__ b, float* out, int n) {
    __shared__ float warp_sums[32];
    float s = 0.f;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        float d = a[i] - b[i];
        s = fmaf(d, d, s);
    }
    for (int o = 16; o > 0; o /= 2) s += __shfl_down_sync(~0u, s, o);
    if ((threadIdx.x & 31) == 0) warp_sums[threadIdx.x >> 5] = s;
    __syncthreads();
    if (threadIdx.x < 32) {
        s = threadIdx.x < blockDim.x / 32 ? warp_sums[threadIdx.x] : 0.f;
        for (int o = 16; o > 0; o /= 2) s += __shfl_down_sync(~0u, s, o);
        if (threadIdx.x == 0) atomicAdd(out, s / n);
    }
}

void mse_launcher(const float* a, const float* b, float* out, int n) {
    mse_kernel<<<256, 512>>>(a, b, out, n);
}
