//: expect: error
//: functions: nine
//: cpp: torch::Tensor nine(torch::Tensor x);
#include <torch/extension.h>
__global__ void nine_kernel(float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = valeu * 9.f;
}
torch::Tensor nine(torch::Tensor x) { auto y = torch::empty_like(x); nine_kernel<<<1, 256>>>(y.data_ptr<float>(), x.numel()); return y; }
