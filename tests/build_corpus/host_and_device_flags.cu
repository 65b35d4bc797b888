//: expect: fast
//: functions: twenty
//: cpp: torch::Tensor twenty(torch::Tensor x);
//: cflags: -O3 -Wall -DHOST_VALUE=1
//: cuda_flags: -O3 -lineinfo -DFACTOR=20.0f -Xcompiler -fPIC,-O2
#include <torch/extension.h>
#ifndef FACTOR
#error FACTOR must be given
#endif
__global__ void twenty_kernel(float* y, int n) { int i = threadIdx.x + blockIdx.x * blockDim.x; if (i < n) y[i] = FACTOR; }
torch::Tensor twenty(torch::Tensor x) {
    float factor = FACTOR;
    auto y = torch::full_like(x, factor);
    twenty_kernel<<<(x.numel() + 255) / 256, 256>>>(y.data_ptr<float>(), x.numel());
    return y;
}
