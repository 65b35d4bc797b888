//: expect: fast
//: functions: normalize
//: cpp: torch::Tensor normalize(torch::Tensor x);
#include <torch/extension.h>
#include <cooperative_groups.h>
using namespace cooperative_groups;

__global__ void normalize_kernel(const float* x, float* y, float* total, int n) {
    grid_group grid = this_grid();
    float v = 0.f;
    for (int i = grid.thread_rank(); i < n; i += grid.size()) v += x[i] * x[i];
    atomicAdd(total, v);
    grid.sync();
    float scale = rsqrtf(*total + 1e-12f);
    for (int i = grid.thread_rank(); i < n; i += grid.size()) y[i] = x[i] * scale;
}

torch::Tensor normalize(torch::Tensor x) {
    auto y = torch::empty_like(x);
    auto total = torch::zeros({1}, x.options());
    const float* xp = x.data_ptr<float>();
    float* yp = y.data_ptr<float>();
    float* tp = total.data_ptr<float>();
    int n = x.numel();
    void* args[] = {&xp, &yp, &tp, &n};
    cudaLaunchCooperativeKernel((void*)normalize_kernel, dim3(64), dim3(256), args, 0, 0);
    return y;
}
