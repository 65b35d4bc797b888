//: expect: fast
//: functions: norm_forward, norm_backward
//: cpp: std::vector<torch::Tensor> norm_forward(torch::Tensor x, torch::Tensor weight, float eps); std::tuple<torch::Tensor, torch::Tensor> norm_backward(torch::Tensor grad, torch::Tensor x, torch::Tensor weight, torch::Tensor scale);
//: cflags: -O3 -std=c++17
//: cuda_flags: -O3 --use_fast_math -std=c++17 --ptxas-options=-v --expt-relaxed-constexpr --expt-extended-lambda
#include <torch/extension.h>
#include <cuda.h>
#include <cuda_runtime.h>
#include <tuple>
#include <vector>

#define WARP_SIZE 32
#define CUDA_CHECK(call)                                                                          \
    do {                                                                                          \
        cudaError_t status = (call);                                                              \
        TORCH_CHECK(status == cudaSuccess, "CUDA error: ", cudaGetErrorString(status), " at ", __LINE__); \
    } while (0)

struct Add { template <typename T> __device__ __host__ T operator()(T a, T b) const { return a + b; } };

template <typename T, typename Op, int Threads>
__device__ __forceinline__ T block_reduce(T value, Op op, T identity) {
    static_assert(Threads % WARP_SIZE == 0, "whole warps");
    __shared__ T shared[Threads / WARP_SIZE];
    for (int offset = WARP_SIZE / 2; offset > 0; offset >>= 1) {
        value = op(value, __shfl_xor_sync(0xffffffffu, value, offset));
    }
    if (threadIdx.x % WARP_SIZE == 0) shared[threadIdx.x / WARP_SIZE] = value;
    __syncthreads();
    T total = identity;
    for (int w = 0; w < Threads / WARP_SIZE; ++w) total = op(total, shared[w]);
    __syncthreads();
    return total;
}

template <int Threads>
__global__ void norm_forward_kernel(const float* __restrict__ x, const float* __restrict__ weight,
                                    float* __restrict__ y, float* __restrict__ scale, int columns, float eps) {
    const float* row = x + (size_t)blockIdx.x * columns;
    float sum = 0.f;
    for (int i = threadIdx.x; i < columns; i += Threads) sum += row[i] * row[i];
    sum = block_reduce<float, Add, Threads>(sum, Add{}, 0.f);
    const float factor = rsqrtf(sum / columns + eps);
    if (threadIdx.x == 0) scale[blockIdx.x] = factor;
    for (int i = threadIdx.x; i < columns; i += Threads) y[(size_t)blockIdx.x * columns + i] = row[i] * factor * weight[i];
}

template <int Threads>
__global__ void norm_backward_kernel(const float* grad, const float* x, const float* weight, const float* scale,
                                     float* dx, float* dweight, int columns) {
    const size_t base = (size_t)blockIdx.x * columns;
    const float s = scale[blockIdx.x];
    float dot = 0.f;
    for (int i = threadIdx.x; i < columns; i += Threads) dot += grad[base + i] * weight[i] * x[base + i];
    dot = block_reduce<float, Add, Threads>(dot, Add(), 0.f) / columns;
    for (int i = threadIdx.x; i < columns; i += Threads) {
        dx[base + i] = s * (grad[base + i] * weight[i] - x[base + i] * dot * s * s);
        atomicAdd(&dweight[i], grad[base + i] * x[base + i] * s);
    }
}

std::vector<torch::Tensor> norm_forward(torch::Tensor x, torch::Tensor weight, float eps) {
    auto options = torch::TensorOptions().dtype(torch::kFloat32).device(x.device());
    auto y = torch::empty_like(x);
    auto scale = torch::empty({x.size(0)}, options);
    auto launch = [&](auto threads) {
        constexpr int kThreads = decltype(threads)::value;
        norm_forward_kernel<kThreads><<<x.size(0), kThreads>>>(x.data_ptr<float>(), weight.data_ptr<float>(),
            y.data_ptr<float>(), scale.data_ptr<float>(), x.size(1), eps);
    };
    if (x.size(1) >= 1024) launch(std::integral_constant<int, 512>{});
    else launch(std::integral_constant<int, 128>{});
    CUDA_CHECK(cudaGetLastError());
    return {y, scale};
}

std::tuple<torch::Tensor, torch::Tensor> norm_backward(
    torch::Tensor grad, torch::Tensor x, torch::Tensor weight, torch::Tensor scale) {
    auto dx = torch::empty_like(x);
    auto dweight = torch::zeros_like(weight);
    norm_backward_kernel<256><<<x.size(0), 256>>>(grad.contiguous().data_ptr<float>(), x.data_ptr<float>(),
        weight.data_ptr<float>(), scale.data_ptr<float>(), dx.data_ptr<float>(), dweight.data_ptr<float>(), x.size(1));
    CUDA_CHECK(cudaGetLastError());
    return std::make_tuple(dx, dweight);
}
