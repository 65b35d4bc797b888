"""Kernels for problems in which a block of threads goes over a row, and over it again."""

from __future__ import annotations

from typing import Final

from benchmarks.candidates.kernels import BLOCK_MAX, BLOCK_SUM, Kernels

__all__ = ["RMS_NORM", "SOFTMAX"]

SOFTMAX: Final = Kernels(
    cuda=f"{BLOCK_SUM}{BLOCK_MAX}"
    """
${typed}__global__ void __launch_bounds__(kThreads) forward_kernel(
    const T* __restrict__ x, T* __restrict__ y, int64_t rows, int64_t columns) {
    $each_row {
        T most = T(-INFINITY);
        $each_column {
            const Pack$of pack = load(x, row * columns + j);
            for (int c = 0; c < kWidth; ++c) most = max(most, pack.at[c]);
        }
        most = block_max(most);
        T total = T(0);
        $each_column {
            const Pack$of pack = load(x, row * columns + j);
            for (int c = 0; c < kWidth; ++c) total += exp(pack.at[c] - most);
        }
        total = block_sum(total);
        $each_column {
            Pack$of pack = load(x, row * columns + j);
            for (int c = 0; c < kWidth; ++c) pack.at[c] = exp(pack.at[c] - most) / total;
            store(y, row * columns + j, pack);
        }
    }
}

${typed}__global__ void __launch_bounds__(kThreads) backward_kernel(
    const T* __restrict__ dy, const T* __restrict__ y, T* __restrict__ dx, int64_t rows, int64_t columns) {
    $each_row {
        T dot = T(0);
        $each_column {
            const Pack$of a = load(dy, row * columns + j), b = load(y, row * columns + j);
            for (int c = 0; c < kWidth; ++c) dot += a.at[c] * b.at[c];
        }
        dot = block_sum(dot);
        $each_column {
            const Pack$of a = load(dy, row * columns + j);
            Pack$of b = load(y, row * columns + j);
            for (int c = 0; c < kWidth; ++c) b.at[c] *= a.at[c] - dot;
            store(dx, row * columns + j, b);
        }
    }
}

torch::Tensor forward(torch::Tensor x) {
    x = ready(x);
    torch::Tensor y = torch::empty_like(x);
    TORCH_CHECK(x.size(-1) % kWidth == 0, "rows must be divisible by ", kWidth);
    const int64_t rows = x.numel() / x.size(-1), columns = x.size(-1) / kWidth;
    [[maybe_unused]] const auto type = x.scalar_type();
    ${open}forward_kernel$of<<<$row_blocks, kThreads>>>(x.data_ptr<T>(), y.data_ptr<T>(), rows, columns);$close
    return y;
}

torch::Tensor backward(torch::Tensor dy, torch::Tensor y) {
    dy = ready(dy);
    torch::Tensor dx = torch::empty_like(y);
    const int64_t rows = y.numel() / y.size(-1), columns = y.size(-1) / kWidth;
    [[maybe_unused]] const auto type = dy.scalar_type();
    ${open}backward_kernel$of<<<$row_blocks, kThreads>>>(
        dy.data_ptr<T>(), y.data_ptr<T>(), dx.data_ptr<T>(), rows, columns);$close
    return dx;
}
""",
    cpp="torch::Tensor forward(torch::Tensor x);\ntorch::Tensor backward(torch::Tensor dy, torch::Tensor y);",
    model="""
class Softmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = extension.forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        return extension.backward(dy, *ctx.saved_tensors)


class ModelNew(nn.Module):
    def forward(self, x):
        return Softmax.apply(x)
""",
)

RMS_NORM: Final = Kernels(
    cuda=f"{BLOCK_SUM}"
    """
${typed}__global__ void __launch_bounds__(kThreads) forward_kernel(
    const T* __restrict__ x, const T* __restrict__ weight, T* __restrict__ y, T* __restrict__ scale,
    T epsilon, int64_t rows, int64_t columns) {
    $each_row {
        T squares = T(0);
        $each_column {
            const Pack$of pack = load(x, row * columns + j);
            for (int c = 0; c < kWidth; ++c) squares += pack.at[c] * pack.at[c];
        }
        const T factor = rsqrt(block_sum(squares) / T(columns * kWidth) + epsilon);
        if (threadIdx.x == 0) scale[row] = factor;
        $each_column {
            Pack$of pack = load(x, row * columns + j);
            const Pack$of by = load(weight, j);
            for (int c = 0; c < kWidth; ++c) pack.at[c] *= factor * by.at[c];
            store(y, row * columns + j, pack);
        }
    }
}

${typed}__global__ void __launch_bounds__(kThreads) input_kernel(
    const T* __restrict__ dy, const T* __restrict__ x, const T* __restrict__ weight, const T* __restrict__ scale,
    T* __restrict__ dx, int64_t rows, int64_t columns) {
    $each_row {
        const T factor = scale[row];
        T dot = T(0);
        $each_column {
            const Pack$of a = load(dy, row * columns + j), b = load(x, row * columns + j), by = load(weight, j);
            for (int c = 0; c < kWidth; ++c) dot += a.at[c] * by.at[c] * (b.at[c] * factor);
        }
        const T share = block_sum(dot) / T(columns * kWidth);
        $each_column {
            const Pack$of a = load(dy, row * columns + j), by = load(weight, j);
            Pack$of b = load(x, row * columns + j);
            for (int c = 0; c < kWidth; ++c) b.at[c] = factor * (a.at[c] * by.at[c] - b.at[c] * factor * share);
            store(dx, row * columns + j, b);
        }
    }
}

// Each block adds up some columns of some rows.
${typed}__global__ void __launch_bounds__(kThreads) weight_kernel(
    const T* __restrict__ dy, const T* __restrict__ x, const T* __restrict__ scale, T* __restrict__ partial,
    int64_t rows, int64_t columns) {
    const int64_t j = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
    if (j >= columns) return;
    Pack$of total = {};
    for (int64_t row = blockIdx.y; row < rows; row += gridDim.y) {
        const Pack$of a = load(dy, row * columns + j), b = load(x, row * columns + j);
        for (int c = 0; c < kWidth; ++c) total.at[c] += a.at[c] * (b.at[c] * scale[row]);
    }
    store(partial, blockIdx.y * columns + j, total);
}

std::vector<torch::Tensor> forward(torch::Tensor x, torch::Tensor weight, double epsilon) {
    x = ready(x), weight = ready(weight);
    torch::Tensor y = torch::empty_like(x);
    const int64_t rows = x.numel() / x.size(-1), columns = weight.numel() / kWidth;
    torch::Tensor scale = torch::empty({rows}, x.options());
    [[maybe_unused]] const auto type = x.scalar_type();
    ${open}forward_kernel$of<<<$row_blocks, kThreads>>>(
        x.data_ptr<T>(), weight.data_ptr<T>(), y.data_ptr<T>(), scale.data_ptr<T>(), T(epsilon), rows, columns);$close
    return {y, scale};
}

std::vector<torch::Tensor> backward(torch::Tensor dy, torch::Tensor x, torch::Tensor weight, torch::Tensor scale) {
    dy = ready(dy), x = ready(x), weight = ready(weight);
    torch::Tensor dx = torch::empty_like(x);
    const int64_t rows = x.numel() / x.size(-1), columns = weight.numel() / kWidth;
    const int64_t parts = std::min<int64_t>(rows, 256);
    torch::Tensor partial = torch::empty({parts, weight.numel()}, x.options());
    const dim3 blocks((columns + kThreads - 1) / kThreads, parts);
    [[maybe_unused]] const auto type = dy.scalar_type();
    ${open}input_kernel$of<<<$row_blocks, kThreads>>>(
        dy.data_ptr<T>(), x.data_ptr<T>(), weight.data_ptr<T>(), scale.data_ptr<T>(), dx.data_ptr<T>(),
        rows, columns);
    weight_kernel$of<<<blocks, kThreads>>>(
        dy.data_ptr<T>(), x.data_ptr<T>(), scale.data_ptr<T>(), partial.data_ptr<T>(), rows, columns);$close
    return {dx, partial.sum(0)};
}
""",
    cpp="std::vector<torch::Tensor> forward(torch::Tensor x, torch::Tensor weight, double epsilon);\n"
    "std::vector<torch::Tensor> backward(\n"
    "    torch::Tensor dy, torch::Tensor x, torch::Tensor weight, torch::Tensor scale);",
    model="""
class RMSNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, epsilon):
        y, scale = extension.forward(x, weight, epsilon)
        ctx.save_for_backward(x, weight, scale)
        return y

    @staticmethod
    def backward(ctx, dy):
        dx, dweight = extension.backward(dy, *ctx.saved_tensors)
        return dx, dweight, None


class ModelNew(nn.Module):
    def __init__(self, features, epsilon):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(features) + 0.5)
        self.epsilon = epsilon

    def forward(self, x):
        return RMSNorm.apply(x, self.weight, self.epsilon)
""",
)
