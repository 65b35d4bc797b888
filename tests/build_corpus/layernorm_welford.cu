//: expect: fast
//: functions: layernorm_forward, layernorm_backward
//: cpp: std::vector<torch::Tensor> layernorm_forward(torch::Tensor x, torch::Tensor w, torch::Tensor b, double eps); std::vector<torch::Tensor> layernorm_backward(torch::Tensor g, torch::Tensor x, torch::Tensor mean, torch::Tensor rstd, torch::Tensor w);
#include <torch/extension.h>
#include <vector>

struct Welford {
    float mean;
    float m2;
    int count;
};

__device__ inline Welford combine(Welford a, Welford b) {
    if (b.count == 0) return a;
    if (a.count == 0) return b;
    float delta = b.mean - a.mean;
    int count = a.count + b.count;
    float nb = (float)b.count / count;
    return {a.mean + delta * nb, a.m2 + b.m2 + delta * delta * a.count * nb, count};
}

template <int kThreads>
__global__ void layernorm_fwd(const float* x, const float* w, const float* b, float* y, float* mean, float* rstd, int D, float eps) {
    __shared__ Welford shared[kThreads];
    const float* row = x + (long)blockIdx.x * D;
    Welford acc{0.f, 0.f, 0};
    for (int i = threadIdx.x; i < D; i += kThreads) {
        acc.count += 1;
        float d = row[i] - acc.mean;
        acc.mean += d / acc.count;
        acc.m2 += d * (row[i] - acc.mean);
    }
    shared[threadIdx.x] = acc;
    __syncthreads();
    for (int s = kThreads / 2; s > 0; s >>= 1) {
        if (threadIdx.x < s) shared[threadIdx.x] = combine(shared[threadIdx.x], shared[threadIdx.x + s]);
        __syncthreads();
    }
    float mu = shared[0].mean, r = rsqrtf(shared[0].m2 / D + eps);
    if (threadIdx.x == 0) { mean[blockIdx.x] = mu; rstd[blockIdx.x] = r; }
    for (int i = threadIdx.x; i < D; i += kThreads) y[(long)blockIdx.x * D + i] = (row[i] - mu) * r * w[i] + b[i];
}

__global__ void layernorm_bwd(const float* g, const float* x, const float* mean, const float* rstd, const float* w,
                              float* dx, float* dw, float* db, int D) {
    __shared__ float s1, s2;
    if (threadIdx.x == 0) { s1 = 0.f; s2 = 0.f; }
    __syncthreads();
    long base = (long)blockIdx.x * D;
    float mu = mean[blockIdx.x], r = rstd[blockIdx.x], a = 0.f, c = 0.f;
    for (int i = threadIdx.x; i < D; i += blockDim.x) {
        float h = (x[base + i] - mu) * r, gw = g[base + i] * w[i];
        a += gw;
        c += gw * h;
        atomicAdd(&dw[i], g[base + i] * h);
        atomicAdd(&db[i], g[base + i]);
    }
    atomicAdd(&s1, a);
    atomicAdd(&s2, c);
    __syncthreads();
    for (int i = threadIdx.x; i < D; i += blockDim.x) {
        float h = (x[base + i] - mu) * r;
        dx[base + i] = r * (g[base + i] * w[i] - (s1 + h * s2) / D);
    }
}

std::vector<torch::Tensor> layernorm_forward(torch::Tensor x, torch::Tensor w, torch::Tensor b, double eps) {
    const int D = x.size(-1);
    const int rows = x.numel() / D;
    auto y = torch::empty_like(x), mean = torch::empty({rows}, x.options()), rstd = torch::empty({rows}, x.options());
    layernorm_fwd<128><<<rows, 128>>>(x.data_ptr<float>(), w.data_ptr<float>(), b.data_ptr<float>(),
        y.data_ptr<float>(), mean.data_ptr<float>(), rstd.data_ptr<float>(), D, (float)eps);
    return {y, mean, rstd};
}

std::vector<torch::Tensor> layernorm_backward(torch::Tensor g, torch::Tensor x, torch::Tensor mean, torch::Tensor rstd, torch::Tensor w) {
    const int D = x.size(-1);
    auto dx = torch::empty_like(x), dw = torch::zeros_like(w), db = torch::zeros_like(w);
    layernorm_bwd<<<x.numel() / D, 256>>>(g.data_ptr<float>(), x.data_ptr<float>(), mean.data_ptr<float>(),
        rstd.data_ptr<float>(), w.data_ptr<float>(), dx.data_ptr<float>(), dw.data_ptr<float>(), db.data_ptr<float>(), D);
    return {dx, dw, db};
}
