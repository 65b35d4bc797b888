//: expect: fast
//: functions: linear_bias
//: cpp: torch::Tensor linear_bias(torch::Tensor x, torch::Tensor w, c10::optional<torch::Tensor> b);
#include <torch/extension.h>
#include <optional>

template <bool kHasBias>
__global__ void linear_kernel(const float* x, const float* w, const float* b, float* y, int N, int K, int O) {
    int o = blockIdx.x * blockDim.x + threadIdx.x, n = blockIdx.y;
    if (o >= O) return;
    float acc = kHasBias ? b[o] : 0.f;
    for (int k = 0; k < K; ++k) acc = fmaf(x[n * K + k], w[o * K + k], acc);
    y[n * O + o] = acc;
}

torch::Tensor linear_bias(torch::Tensor x, torch::Tensor w, c10::optional<torch::Tensor> b) {
    int N = x.size(0), K = x.size(1), O = w.size(0);
    auto y = torch::empty({N, O}, x.options());
    dim3 grid((O + 127) / 128, N);
    if (b.has_value())
        linear_kernel<true><<<grid, 128>>>(x.data_ptr<float>(), w.data_ptr<float>(), b->data_ptr<float>(), y.data_ptr<float>(), N, K, O);
    else
        linear_kernel<false><<<grid, 128>>>(x.data_ptr<float>(), w.data_ptr<float>(), nullptr, y.data_ptr<float>(), N, K, O);
    return y;
}
