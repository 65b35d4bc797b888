"""What a CUDA candidate is made of: a prelude, kernels forward and backward, and the model that uses them.

The CUDA texts are ``string.Template``s, of which a variant fills in how elements are loaded, looped over and
dispatched. ``T`` is the type of the elements, ``kWidth`` of them are a pack; ``count`` and ``columns`` are packs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["BLOCK_MAX", "BLOCK_SUM", "PRELUDE", "Kernels"]


@dataclass(frozen=True)
class Kernels:
    """What is computed for one problem: CUDA, the declarations of ``forward`` and ``backward``, and the model."""

    cuda: str
    cpp: str
    model: str


PRELUDE: Final = """
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <algorithm>
#include <vector>

constexpr int kThreads = $threads;
constexpr int kWidth = $width;
$alias
${typed}struct alignas(sizeof(T) * kWidth) Pack {
    T at[kWidth];
};

${typed}__device__ __forceinline__ Pack$of load(const T* __restrict__ from, int64_t i) {
    $load
}

${typed}__device__ __forceinline__ void store(T* __restrict__ to, int64_t i, const Pack$of& pack) {
    reinterpret_cast<Pack$of*>(to)[i] = pack;
}

// Dense, and where a pack may be read from.
torch::Tensor ready(const torch::Tensor& tensor) {
    const torch::Tensor dense = tensor.contiguous();
    TORCH_CHECK(dense.numel() % kWidth == 0, "the number of elements must be divisible by ", kWidth);
    return reinterpret_cast<uintptr_t>(dense.data_ptr()) % 16 == 0 ? dense : dense.clone();
}

int64_t blocks_for(int64_t count) {
    return $blocks;
}
"""


def _over_the_block(name: str, combined: str, neutral: str) -> str:
    """A function that gives every thread of a block what ``combined`` makes of all their values."""
    across = f"""for (int offset = 16; offset > 0; offset /= 2) {{
        const T other = __shfl_xor_sync(0xffffffff, value, offset);
        value = {combined};
    }}"""
    return f"""
${{typed}}__device__ T {name}(T value) {{
    __shared__ T found[32];
    {across}
    __syncthreads();  // whoever still reads what was found before
    if (threadIdx.x % 32 == 0) found[threadIdx.x / 32] = value;
    __syncthreads();
    value = threadIdx.x % 32 < kThreads / 32 ? found[threadIdx.x % 32] : {neutral};
    {across}
    return value;
}}
"""


BLOCK_SUM: Final = _over_the_block("block_sum", "value + other", "T(0)")
BLOCK_MAX: Final = _over_the_block("block_max", "max(value, other)", "T(-INFINITY)")
