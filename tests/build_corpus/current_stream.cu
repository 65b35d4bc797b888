//: expect: fast
//: functions: tanh_stream
//: cpp: torch::Tensor tanh_stream(torch::Tensor x);
//: needs: cublas_v2.h
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAGuard.h>

__global__ void tanh_kernel(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = tanhf(x[i]);
}

torch::Tensor tanh_stream(torch::Tensor x) {
    const at::cuda::OptionalCUDAGuard guard(device_of(x));
    cudaStream_t stream = at::cuda::getCurrentCUDAStream();
    auto y = torch::empty_like(x);
    tanh_kernel<<<(x.numel() + 255) / 256, 256, 0, stream>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return y;
}
