"""Kernels for losses: one number of everything."""

from __future__ import annotations

from typing import Final

from benchmarks.candidates.kernels import BLOCK_SUM, Kernels

__all__ = ["SMOOTH_L1_LOSS"]

SMOOTH_L1_LOSS: Final = Kernels(
    cuda=f"{BLOCK_SUM}"
    """
${typed}__global__ void __launch_bounds__(kThreads) forward_kernel(
    const T* __restrict__ predictions, const T* __restrict__ targets, T* __restrict__ partial, T beta,
    int64_t count) {
    T total = T(0);
    $each_pack {
        const Pack$of a = load(predictions, i), b = load(targets, i);
        for (int c = 0; c < kWidth; ++c) {
            const T distance = fabs(a.at[c] - b.at[c]);
            total += distance < beta ? T(0.5) * distance * distance / beta : distance - T(0.5) * beta;
        }
    }
    total = block_sum(total);
    if (threadIdx.x == 0) partial[blockIdx.x] = total;
}

${typed}__global__ void __launch_bounds__(kThreads) backward_kernel(
    const T* __restrict__ dy, const T* __restrict__ predictions, const T* __restrict__ targets,
    T* __restrict__ dpredictions, T* __restrict__ dtargets, T beta, int64_t count) {
    const T each = dy[0] / T(count * kWidth);
    $each_pack {
        Pack$of a = load(predictions, i), b = load(targets, i);
        for (int c = 0; c < kWidth; ++c) {
            const T slope = min(max((a.at[c] - b.at[c]) / beta, T(-1)), T(1));
            a.at[c] = each * slope;
            b.at[c] = -each * slope;
        }
        store(dpredictions, i, a);
        store(dtargets, i, b);
    }
}

torch::Tensor forward(torch::Tensor predictions, torch::Tensor targets, double beta) {
    predictions = ready(predictions), targets = ready(targets);
    const int64_t count = predictions.numel() / kWidth;
    torch::Tensor partial = torch::empty({blocks_for(count)}, predictions.options());
    [[maybe_unused]] const auto type = predictions.scalar_type();
    ${open}forward_kernel$of<<<blocks_for(count), kThreads>>>(
        predictions.data_ptr<T>(), targets.data_ptr<T>(), partial.data_ptr<T>(), T(beta), count);$close
    return partial.sum() / static_cast<double>(predictions.numel());
}

std::vector<torch::Tensor> backward(
    torch::Tensor dy, torch::Tensor predictions, torch::Tensor targets, double beta) {
    predictions = ready(predictions), targets = ready(targets);
    torch::Tensor dpredictions = torch::empty_like(predictions), dtargets = torch::empty_like(targets);
    const int64_t count = predictions.numel() / kWidth;
    [[maybe_unused]] const auto type = predictions.scalar_type();
    ${open}backward_kernel$of<<<blocks_for(count), kThreads>>>(
        dy.data_ptr<T>(), predictions.data_ptr<T>(), targets.data_ptr<T>(), dpredictions.data_ptr<T>(),
        dtargets.data_ptr<T>(), T(beta), count);$close
    return {dpredictions, dtargets};
}
""",
    cpp="torch::Tensor forward(torch::Tensor predictions, torch::Tensor targets, double beta);\n"
    "std::vector<torch::Tensor> backward(\n"
    "    torch::Tensor dy, torch::Tensor predictions, torch::Tensor targets, double beta);",
    model="""
class Loss(torch.autograd.Function):
    @staticmethod
    def forward(ctx, predictions, targets, beta):
        ctx.save_for_backward(predictions, targets)
        ctx.beta = beta
        return extension.forward(predictions, targets, beta)

    @staticmethod
    def backward(ctx, dy):
        return *extension.backward(dy, *ctx.saved_tensors, ctx.beta), None


class ModelNew(nn.Module):
    def __init__(self, beta):
        super().__init__()
        self.beta = beta

    def forward(self, predictions, targets):
        return Loss.apply(predictions, targets, self.beta)
""",
)
