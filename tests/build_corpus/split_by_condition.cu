//: expect: refused: a condition of the preprocessor cuts through a declaration
//: functions: neg
//: cpp: torch::Tensor neg(torch::Tensor x);
#include <torch/extension.h>
__global__ void neg_kernel(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
#ifdef GUARDED
    if (i < n) {
#else
    if (i < n && x[i] != 0.f) {
#endif
        y[i] = -x[i];
    }
}
torch::Tensor neg(torch::Tensor x) {
    auto y = torch::zeros_like(x);
    neg_kernel<<<(x.numel() + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
    return y;
}
