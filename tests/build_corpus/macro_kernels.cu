//: expect: fast
//: functions: exp_op, log_op
//: cpp: torch::Tensor exp_op(torch::Tensor x); torch::Tensor log_op(torch::Tensor x);
#include <torch/extension.h>

#define DEFINE_UNARY_KERNEL(name, expr)                                    \
    __global__ void name##_kernel(const float* in, float* out, int n) {    \
        int i = blockIdx.x * blockDim.x + threadIdx.x;                     \
        if (i < n) {                                                       \
            float x = in[i];                                               \
            out[i] = expr;                                                 \
        }                                                                  \
    }

#define LAUNCH(name, x, y) \
    name##_kernel<<<((x).numel() + 255) / 256, 256>>>((x).data_ptr<float>(), (y).data_ptr<float>(), (x).numel())

DEFINE_UNARY_KERNEL(exp, expf(x))
DEFINE_UNARY_KERNEL(log, logf(x + 1e-6f))

torch::Tensor exp_op(torch::Tensor x) {
    auto y = torch::empty_like(x);
    LAUNCH(exp, x, y);
    return y;
}

torch::Tensor log_op(torch::Tensor x) {
    auto y = torch::empty_like(x);
    LAUNCH(log, x, y);
    return y;
}
