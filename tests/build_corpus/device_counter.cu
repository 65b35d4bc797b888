//: expect: fast
//: functions: block_sum
//: cpp: torch::Tensor block_sum(torch::Tensor x);
#include <torch/extension.h>

__device__ unsigned int retirement_count = 0;

__global__ void block_sum_kernel(const float* x, float* partial, float* out, int n) {
    __shared__ float smem[256];
    __shared__ bool last;
    float v = 0;
    for (int i = blockIdx.x * 256 + threadIdx.x; i < n; i += 256 * gridDim.x) v += x[i];
    smem[threadIdx.x] = v;
    __syncthreads();
    for (int s = 128; s; s /= 2) {
        if (threadIdx.x < s) smem[threadIdx.x] += smem[threadIdx.x + s];
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        partial[blockIdx.x] = smem[0];
        __threadfence();
        last = atomicInc(&retirement_count, gridDim.x) == gridDim.x - 1;
    }
    __syncthreads();
    if (last && threadIdx.x == 0) {
        float s = 0;
        for (int i = 0; i < gridDim.x; ++i) s += partial[i];
        *out = s;
        retirement_count = 0;
    }
}

torch::Tensor block_sum(torch::Tensor x) {
    auto partial = torch::empty({64}, x.options());
    auto out = torch::empty({}, x.options());
    block_sum_kernel<<<64, 256>>>(x.data_ptr<float>(), partial.data_ptr<float>(), out.data_ptr<float>(), x.numel());
    return out;
}
