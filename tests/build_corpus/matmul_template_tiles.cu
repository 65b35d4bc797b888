//: expect: fast
//: functions: gemm
//: cpp: torch::Tensor gemm(torch::Tensor a, torch::Tensor b);
#include <torch/extension.h>

template <int BM, int BN, int BK, int TM, int TN>
__global__ void gemm_kernel(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C,
                            int M, int N, int K) {
    __shared__ float As[BM * BK];
    __shared__ float Bs[BK * BN];
    const int threadCol = threadIdx.x % (BN / TN);
    const int threadRow = threadIdx.x / (BN / TN);
    float results[TM * TN] = {0.0f};
    for (int bk = 0; bk < K; bk += BK) {
        for (int i = threadIdx.x; i < BM * BK; i += blockDim.x) {
            int r = i / BK + blockIdx.y * BM, c = i % BK + bk;
            As[i] = r < M && c < K ? A[r * K + c] : 0.f;
        }
        for (int i = threadIdx.x; i < BK * BN; i += blockDim.x) {
            int r = i / BN + bk, c = i % BN + blockIdx.x * BN;
            Bs[i] = r < K && c < N ? B[r * N + c] : 0.f;
        }
        __syncthreads();
        for (int k = 0; k < BK; ++k)
            for (int i = 0; i < TM; ++i)
                for (int j = 0; j < TN; ++j)
                    results[i * TN + j] += As[(threadRow * TM + i) * BK + k] * Bs[k * BN + threadCol * TN + j];
        __syncthreads();
    }
    for (int i = 0; i < TM; ++i)
        for (int j = 0; j < TN; ++j) {
            int r = blockIdx.y * BM + threadRow * TM + i, c = blockIdx.x * BN + threadCol * TN + j;
            if (r < M && c < N) C[r * N + c] = results[i * TN + j];
        }
}

torch::Tensor gemm(torch::Tensor a, torch::Tensor b) {
    int M = a.size(0), K = a.size(1), N = b.size(1);
    auto c = torch::empty({M, N}, a.options());
    if (M >= 128 && N >= 128) {
        dim3 grid((N + 63) / 64, (M + 63) / 64);
        gemm_kernel<64, 64, 8, 8, 8><<<grid, 64>>>(a.data_ptr<float>(), b.data_ptr<float>(), c.data_ptr<float>(), M, N, K);
    } else {
        dim3 grid((N + 31) / 32, (M + 31) / 32);
        gemm_kernel<32, 32, 8, 4, 4><<<grid, 64>>>(a.data_ptr<float>(), b.data_ptr<float>(), c.data_ptr<float>(), M, N, K);
    }
    return c;
}
