//: expect: fast
//: functions: embedding
//: cpp: torch::Tensor embedding(torch::Tensor idx, torch::Tensor w);
#include <torch/extension.h>
#include <stdint.h>

template <typename index_t>
__global__ void embedding_kernel(const index_t* idx, const float* w, float* y, int64_t D) {
    const int64_t row = idx[blockIdx.x];
    for (int64_t d = threadIdx.x; d < D; d += blockDim.x) y[blockIdx.x * D + d] = w[row * D + d];
}

torch::Tensor embedding(torch::Tensor idx, torch::Tensor w) {
    auto y = torch::empty({idx.numel(), w.size(1)}, w.options());
    AT_DISPATCH_INDEX_TYPES(idx.scalar_type(), "embedding", [&]() {
        embedding_kernel<index_t><<<idx.numel(), 128>>>(idx.data_ptr<index_t>(), w.data_ptr<float>(), y.data_ptr<float>(), w.size(1));
    });
    return y;
}
