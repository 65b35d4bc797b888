//: expect: fast
//: functions: wmma_gemm
//: cpp: torch::Tensor wmma_gemm(torch::Tensor a, torch::Tensor b);
#include <torch/extension.h>
#include <mma.h>
#include <cuda_fp16.h>
using namespace nvcuda;

__global__ void wmma_kernel(const half* a, const half* b, float* c, int M, int N, int K) {
    int tm = blockIdx.y * 16, tn = blockIdx.x * 16;
    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> fa;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major> fb;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> acc;
    wmma::fill_fragment(acc, 0.0f);
    for (int k = 0; k < K; k += 16) {
        wmma::load_matrix_sync(fa, a + tm * K + k, K);
        wmma::load_matrix_sync(fb, b + k * N + tn, N);
        wmma::mma_sync(acc, fa, fb, acc);
    }
    wmma::store_matrix_sync(c + tm * N + tn, acc, N, wmma::mem_row_major);
}

torch::Tensor wmma_gemm(torch::Tensor a, torch::Tensor b) {
    int M = a.size(0), K = a.size(1), N = b.size(1);
    auto c = torch::zeros({M, N}, a.options().dtype(torch::kFloat));
    wmma_kernel<<<dim3(N / 16, M / 16), 32>>>(reinterpret_cast<const half*>(a.data_ptr<at::Half>()),
        reinterpret_cast<const half*>(b.data_ptr<at::Half>()), c.data_ptr<float>(), M, N, K);
    return c;
}
