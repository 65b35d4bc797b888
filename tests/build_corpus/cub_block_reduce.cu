//: expect: fast
//: functions: cub_sum
//: cpp: torch::Tensor cub_sum(torch::Tensor x);
#include <torch/extension.h>
#include <cub/cub.cuh>

template <int kThreads>
__global__ void cub_sum_kernel(const float* x, float* out, int n) {
    using Reduce = cub::BlockReduce<float, kThreads>;
    __shared__ typename Reduce::TempStorage storage;
    float v = 0.f;
    for (int i = blockIdx.x * kThreads + threadIdx.x; i < n; i += gridDim.x * kThreads) v += x[i];
    float s = Reduce(storage).Sum(v);
    if (threadIdx.x == 0) atomicAdd(out, s);
}

torch::Tensor cub_sum(torch::Tensor x) {
    auto out = torch::zeros({}, x.options());
    cub_sum_kernel<256><<<64, 256>>>(x.data_ptr<float>(), out.data_ptr<float>(), x.numel());
    return out;
}
