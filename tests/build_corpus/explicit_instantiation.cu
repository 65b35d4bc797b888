//: expect: fast
//: functions: copy_rows
//: cpp: torch::Tensor copy_rows(torch::Tensor x);
#include <torch/extension.h>

template <typename T, int N>
__global__ void copy_kernel(const T* __restrict__ x, T* __restrict__ y, int n) {
    int i = (blockIdx.x * blockDim.x + threadIdx.x) * N;
    #pragma unroll
    for (int k = 0; k < N; ++k) if (i + k < n) y[i + k] = x[i + k];
}

template __global__ void copy_kernel<float, 4>(const float*, float*, int);
template __global__ void copy_kernel<double, 2>(const double*, double*, int);

template <typename T, int N>
void launch_copy(const T* x, T* y, int n) {
    copy_kernel<T, N><<<(n / N + 255) / 256 + 1, 256>>>(x, y, n);
}

template void launch_copy<float, 4>(const float*, float*, int);
template void launch_copy<double, 2>(const double*, double*, int);

torch::Tensor copy_rows(torch::Tensor x) {
    auto y = torch::empty_like(x);
    if (x.dtype() == torch::kFloat32) launch_copy<float, 4>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
    else launch_copy<double, 2>(x.data_ptr<double>(), y.data_ptr<double>(), x.numel());
    return y;
}
