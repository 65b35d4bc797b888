//: expect: fast
//: functions: negate
//: cpp: torch::Tensor negate(torch::Tensor x);
#include <torch/extension.h>
#include <cstdio>
#include <cstdlib>

#define CUDA_CHECK(call)                                                          \
    do {                                                                          \
        cudaError_t status_ = (call);                                             \
        if (status_ != cudaSuccess) {                                             \
            fprintf(stderr, "CUDA error %s at %s:%d\n",                           \
                    cudaGetErrorString(status_), __FILE__, __LINE__);             \
            exit(EXIT_FAILURE);                                                   \
        }                                                                         \
    } while (0)

__global__ void negate_kernel(const float *in, float *out, size_t n)
{
    for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x)
        out[i] = -in[i];
}

torch::Tensor negate(torch::Tensor x)
{
    auto out = torch::empty_like(x);
    int device, sms;
    CUDA_CHECK(cudaGetDevice(&device));
    CUDA_CHECK(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device));
    negate_kernel<<<sms * 4, 256>>>(x.data_ptr<float>(), out.data_ptr<float>(), x.numel());
    CUDA_CHECK(cudaGetLastError());
    return out;
}
