//: expect: fast
//: functions: add_half
//: cpp: torch::Tensor add_half(torch::Tensor a, torch::Tensor b);
#include <torch/extension.h>
#include <cuda_fp16.h>

__global__ void add_half2_kernel(const __half2* a, const __half2* b, __half2* c, int n2) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n2) c[i] = __hadd2(a[i], b[i]);
}

torch::Tensor add_half(torch::Tensor a, torch::Tensor b) {
    auto c = torch::empty_like(a);
    int n2 = a.numel() / 2;
    add_half2_kernel<<<(n2 + 255) / 256, 256>>>(
        reinterpret_cast<const __half2*>(a.data_ptr<at::Half>()),
        reinterpret_cast<const __half2*>(b.data_ptr<at::Half>()),
        reinterpret_cast<__half2*>(c.data_ptr<at::Half>()), n2);
    return c;
}
