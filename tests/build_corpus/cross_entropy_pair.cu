//: expect: fast
//: functions: ce_forward, ce_backward
//: cpp: std::tuple<torch::Tensor, torch::Tensor> ce_forward(torch::Tensor x, torch::Tensor t); torch::Tensor ce_backward(torch::Tensor g, torch::Tensor p, torch::Tensor t);
#include <torch/extension.h>
#include <tuple>

__global__ void ce_forward_kernel(const float* x, const int64_t* t, float* p, float* loss, int N, int C) {
    int n = blockIdx.x;
    extern __shared__ float red[];
    float m = -1e30f;
    for (int c = threadIdx.x; c < C; c += blockDim.x) m = max(m, x[n * C + c]);
    red[threadIdx.x] = m; __syncthreads();
    for (int s = blockDim.x / 2; s; s >>= 1) { if (threadIdx.x < s) red[threadIdx.x] = max(red[threadIdx.x], red[threadIdx.x + s]); __syncthreads(); }
    m = red[0]; __syncthreads();
    float z = 0.f;
    for (int c = threadIdx.x; c < C; c += blockDim.x) z += exp(x[n * C + c] - m);
    red[threadIdx.x] = z; __syncthreads();
    for (int s = blockDim.x / 2; s; s >>= 1) { if (threadIdx.x < s) red[threadIdx.x] += red[threadIdx.x + s]; __syncthreads(); }
    z = red[0];
    for (int c = threadIdx.x; c < C; c += blockDim.x) p[n * C + c] = exp(x[n * C + c] - m) / z;
    if (threadIdx.x == 0) atomicAdd(loss, (log(z) + m - x[n * C + t[n]]) / N);
}

__global__ void ce_backward_kernel(const float* g, const float* p, const int64_t* t, float* dx, int N, int C) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= N * C) return;
    int n = i / C, c = i % C;
    dx[i] = *g * (p[i] - (c == t[n] ? 1.f : 0.f)) / N;
}

std::tuple<torch::Tensor, torch::Tensor> ce_forward(torch::Tensor x, torch::Tensor t) {
    const int N = x.size(0), C = x.size(1);
    auto p = torch::empty_like(x), loss = torch::zeros({}, x.options());
    ce_forward_kernel<<<N, 128, 128 * sizeof(float)>>>(x.data_ptr<float>(), t.data_ptr<int64_t>(), p.data_ptr<float>(), loss.data_ptr<float>(), N, C);
    return std::make_tuple(loss, p);
}

torch::Tensor ce_backward(torch::Tensor g, torch::Tensor p, torch::Tensor t) {
    const int N = p.size(0), C = p.size(1);
    auto dx = torch::empty_like(p);
    ce_backward_kernel<<<(N * C + 255) / 256, 256>>>(g.data_ptr<float>(), p.data_ptr<float>(), t.data_ptr<int64_t>(), dx.data_ptr<float>(), N, C);
    return dx;
}
