//: expect: fast
//: functions: apply_op
//: cpp: torch::Tensor apply_op(torch::Tensor x, int64_t op);
#include <torch/extension.h>

struct Relu {
    __device__ __forceinline__ float operator()(float v) const { return v > 0.f ? v : 0.f; }
};

struct LeakyRelu {
    float slope;
    explicit LeakyRelu(float s) : slope(s) {}
    __host__ __device__ float operator()(float v) const { return v > 0.f ? v : slope * v; }
};

template <typename Op>
__global__ void apply_kernel(const float* x, float* y, int n, Op op) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = op(x[i]);
}

template <typename Op>
void launch(const torch::Tensor& x, torch::Tensor& y, Op op) {
    int n = x.numel();
    apply_kernel<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), n, op);
}

torch::Tensor apply_op(torch::Tensor x, int64_t op) {
    auto y = torch::empty_like(x);
    if (op == 0) launch(x, y, Relu{});
    else launch(x, y, LeakyRelu(0.01f));
    return y;
}
