//: expect: fast
//: functions: sum_all
//: cpp: torch::Tensor sum_all(torch::Tensor x);
#include <torch/extension.h>
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>

namespace cg = cooperative_groups;

__global__ void sum_kernel(const float* x, float* out, int n) {
    cg::thread_block block = cg::this_thread_block();
    cg::thread_block_tile<32> tile = cg::tiled_partition<32>(block);
    float v = 0.f;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) v += x[i];
    v = cg::reduce(tile, v, cg::plus<float>());
    if (tile.thread_rank() == 0) atomicAdd(out, v);
}

torch::Tensor sum_all(torch::Tensor x) {
    auto out = torch::zeros({1}, x.options());
    sum_kernel<<<128, 256>>>(x.data_ptr<float>(), out.data_ptr<float>(), x.numel());
    return out;
}
