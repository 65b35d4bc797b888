//: expect: fast
//: functions: rowsum_big
//: cpp: torch::Tensor rowsum_big(torch::Tensor x);
#include <torch/extension.h>

extern __shared__ float smem[];

template <int kThreads>
__global__ void __launch_bounds__(kThreads, 2) rowsum_kernel(const float* x, float* y, int cols) {
    for (int i = threadIdx.x; i < cols; i += kThreads) smem[i] = x[blockIdx.x * cols + i];
    __syncthreads();
    if (threadIdx.x == 0) {
        float s = 0.f;
        for (int i = 0; i < cols; ++i) s += smem[i];
        y[blockIdx.x] = s;
    }
}

torch::Tensor rowsum_big(torch::Tensor x) {
    auto y = torch::empty({x.size(0)}, x.options());
    size_t bytes = x.size(1) * sizeof(float);
    cudaFuncSetAttribute(rowsum_kernel<256>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
    rowsum_kernel<256><<<x.size(0), 256, bytes>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.size(1));
    return y;
}
