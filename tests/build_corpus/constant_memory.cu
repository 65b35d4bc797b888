//: expect: fast
//: functions: conv1d_const
//: cpp: torch::Tensor conv1d_const(torch::Tensor x, torch::Tensor w);
#include <torch/extension.h>

#define MAX_TAPS 64
__constant__ float d_taps[MAX_TAPS];
static __constant__ int d_count;

__global__ void conv1d_kernel(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float acc = 0.f;
    for (int t = 0; t < d_count; ++t) {
        int j = i + t - d_count / 2;
        if (j >= 0 && j < n) acc += d_taps[t] * x[j];
    }
    y[i] = acc;
}

torch::Tensor conv1d_const(torch::Tensor x, torch::Tensor w) {
    TORCH_CHECK(w.numel() <= MAX_TAPS);
    int count = w.numel();
    cudaMemcpyToSymbol(d_taps, w.data_ptr<float>(), count * sizeof(float), 0, cudaMemcpyDeviceToDevice);
    cudaMemcpyToSymbol(d_count, &count, sizeof(int));
    auto y = torch::empty_like(x);
    conv1d_kernel<<<(x.numel() + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
    return y;
}
