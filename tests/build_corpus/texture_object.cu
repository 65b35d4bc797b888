//: expect: refused: a texture
//: functions: sample
//: cpp: torch::Tensor sample(torch::Tensor x);
#include <torch/extension.h>

__global__ void sample_kernel(cudaTextureObject_t tex, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = tex1Dfetch<float>(tex, i);
}

torch::Tensor sample(torch::Tensor x) {
    cudaResourceDesc res = {};
    res.resType = cudaResourceTypeLinear;
    res.res.linear.devPtr = x.data_ptr<float>();
    res.res.linear.desc = cudaCreateChannelDesc<float>();
    res.res.linear.sizeInBytes = x.numel() * sizeof(float);
    cudaTextureDesc desc = {};
    cudaTextureObject_t tex = 0;
    cudaCreateTextureObject(&tex, &res, &desc, nullptr);
    auto y = torch::empty_like(x);
    sample_kernel<<<(x.numel() + 255) / 256, 256>>>(tex, y.data_ptr<float>(), x.numel());
    return y;
}
