//: expect: fast
//: functions: avgpool
//: cpp: torch::Tensor avgpool(torch::Tensor x);
#include <torch/extension.h>

static constexpr int kWindow = 2;
const int kThreads = 128;
constexpr int out_size(int n) { return n / kWindow; }

__global__ void avgpool_kernel(const float* x, float* y, int h, int w) {
    int oh = out_size(h), ow = out_size(w);
    int i = blockIdx.x * kThreads + threadIdx.x;
    if (i >= oh * ow) return;
    int r = i / ow, c = i % ow;
    float s = 0.f;
    for (int a = 0; a < kWindow; ++a)
        for (int b = 0; b < kWindow; ++b) s += x[(r * kWindow + a) * w + c * kWindow + b];
    y[i] = s / (kWindow * kWindow);
}

torch::Tensor avgpool(torch::Tensor x) {
    int h = x.size(0), w = x.size(1);
    auto y = torch::empty({out_size(h), out_size(w)}, x.options());
    avgpool_kernel<<<(y.numel() + kThreads - 1) / kThreads, kThreads>>>(x.data_ptr<float>(), y.data_ptr<float>(), h, w);
    return y;
}
