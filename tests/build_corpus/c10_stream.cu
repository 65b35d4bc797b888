//: expect: fast
//: functions: sigmoid_stream
//: cpp: torch::Tensor sigmoid_stream(torch::Tensor x);
#include <torch/types.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/cuda/CUDAException.h>

__global__ void sigmoid_kernel(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 1.0f / (1.0f + __expf(-x[i]));
}

torch::Tensor sigmoid_stream(torch::Tensor x) {
    auto y = torch::empty_like(x);
    auto stream = c10::cuda::getCurrentCUDAStream();
    sigmoid_kernel<<<(x.numel() + 255) / 256, 256, 0, stream.stream()>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
    C10_CUDA_CHECK(cudaGetLastError());
    return y;
}
