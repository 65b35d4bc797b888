//: expect: fast
//: functions: attention
//: cpp: torch::Tensor attention(torch::Tensor q, torch::Tensor k, torch::Tensor v);
//: cuda_flags: -O3 --use_fast_math
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <math_constants.h>

template <int D, int kRows>
__global__ void attention_kernel(const float* __restrict__ Q, const float* __restrict__ K, const float* __restrict__ V,
                                 float* __restrict__ O, int S, float scale) {
    __shared__ float Ks[kRows][D];
    __shared__ float Vs[kRows][D];
    const int head = blockIdx.y;
    const int row = blockIdx.x * blockDim.x + threadIdx.x;
    const float* q = Q + ((size_t)head * S + row) * D;
    float acc[D], qr[D];
    float m = -CUDART_INF_F, l = 0.f;
#pragma unroll
    for (int d = 0; d < D; ++d) { acc[d] = 0.f; qr[d] = row < S ? q[d] * scale : 0.f; }
    for (int base = 0; base < S; base += kRows) {
        for (int i = threadIdx.x; i < kRows * D; i += blockDim.x) {
            int r = i / D, d = i % D;
            bool ok = base + r < S;
            Ks[r][d] = ok ? K[((size_t)head * S + base + r) * D + d] : 0.f;
            Vs[r][d] = ok ? V[((size_t)head * S + base + r) * D + d] : 0.f;
        }
        __syncthreads();
        int limit = min(kRows, S - base);
        for (int r = 0; r < limit; ++r) {
            float s = 0.f;
#pragma unroll
            for (int d = 0; d < D; ++d) s = fmaf(qr[d], Ks[r][d], s);
            float mn = fmaxf(m, s), corr = __expf(m - mn), p = __expf(s - mn);
            l = l * corr + p;
#pragma unroll
            for (int d = 0; d < D; ++d) acc[d] = acc[d] * corr + p * Vs[r][d];
            m = mn;
        }
        __syncthreads();
    }
    if (row < S) for (int d = 0; d < D; ++d) O[((size_t)head * S + row) * D + d] = acc[d] / l;
}

torch::Tensor attention(torch::Tensor q, torch::Tensor k, torch::Tensor v) {
    TORCH_CHECK(q.dim() == 4, "expected [B, H, S, D]");
    auto o = torch::empty_like(q);
    const int heads = q.size(0) * q.size(1), S = q.size(2), D = q.size(3);
    const float scale = 1.0f / std::sqrt(static_cast<float>(D));
    dim3 grid((S + 63) / 64, heads);
    switch (D) {
        case 32: attention_kernel<32, 32><<<grid, 64>>>(q.data_ptr<float>(), k.data_ptr<float>(), v.data_ptr<float>(), o.data_ptr<float>(), S, scale); break;
        case 64: attention_kernel<64, 32><<<grid, 64>>>(q.data_ptr<float>(), k.data_ptr<float>(), v.data_ptr<float>(), o.data_ptr<float>(), S, scale); break;
        default: TORCH_CHECK(false, "head dimension ", D, " is not supported");
    }
    return o;
}
