//: expect: fast
//: functions: softmax_cuda
//: cpp: torch::Tensor softmax_cuda(torch::Tensor x);
#include <torch/extension.h>
#include <cfloat>

namespace {

constexpr int kWarp = 32;

__device__ __forceinline__ float warp_max(float v) {
    for (int o = kWarp / 2; o > 0; o >>= 1) v = fmaxf(v, __shfl_xor_sync(0xffffffff, v, o));
    return v;
}

__device__ __forceinline__ float warp_sum(float v) {
#pragma unroll
    for (int o = kWarp / 2; o > 0; o >>= 1) v += __shfl_xor_sync(0xffffffff, v, o);
    return v;
}

__global__ void softmax_kernel(const float* x, float* y, int cols) {
    extern __shared__ float scratch[];
    const float* row = x + blockIdx.x * (size_t)cols;
    float m = -FLT_MAX;
    for (int i = threadIdx.x; i < cols; i += blockDim.x) m = fmaxf(m, row[i]);
    m = warp_max(m);
    int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
    if (lane == 0) scratch[warp] = m;
    __syncthreads();
    m = lane < blockDim.x / kWarp ? scratch[lane] : -FLT_MAX;
    m = warp_max(m);
    __syncthreads();
    float s = 0.f;
    for (int i = threadIdx.x; i < cols; i += blockDim.x) s += __expf(row[i] - m);
    s = warp_sum(s);
    if (lane == 0) scratch[warp] = s;
    __syncthreads();
    s = lane < blockDim.x / kWarp ? scratch[lane] : 0.f;
    s = warp_sum(s);
    for (int i = threadIdx.x; i < cols; i += blockDim.x) y[blockIdx.x * (size_t)cols + i] = __expf(row[i] - m) / s;
}

}  // namespace

torch::Tensor softmax_cuda(torch::Tensor x) {
    auto y = torch::empty_like(x);
    int rows = x.size(0), cols = x.size(1);
    softmax_kernel<<<rows, 256, 256 / kWarp * sizeof(float)>>>(x.data_ptr<float>(), y.data_ptr<float>(), cols);
    return y;
}
