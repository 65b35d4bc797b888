"""What the judge does to memory most often, each in one pass on CUDA: fingerprints, and comparing what is right.

The same in torch's own operations goes over the memory several times (``benchmarks/judge_kernels.py``). Compiled by
NVRTC when they are first needed; where that does not work, everything is done by torch's operations, with the same
results.
"""

from __future__ import annotations

import struct
import sys
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, Final

import torch

__all__ = ["Kernels", "RightSlice", "kernels"]

_THREADS: Final = 256
_WORDS_OF_A_BLOCK: Final = 2**15
_MOST_BLOCKS: Final = 2048

_FINGERPRINT: Final = r"""
extern "C" __global__ void fingerprint(
    const int* words, const long long* weights, const long long* sizes, unsigned long long* sums) {
  const long long count = sizes[0], piece = sizes[1], share = sizes[2];
  const long long begin = blockIdx.x * share, end = min(begin + share, count);
  const long long first = begin / piece * piece;
  unsigned long long sum = 0;
  for (long long i = begin + threadIdx.x; i < end; i += blockDim.x)
    sum += (unsigned long long)((long long)words[i] * weights[i - first]);
  for (int offset = 16; offset; offset /= 2) sum += __shfl_down_sync(0xffffffffu, sum, offset);
  if (threadIdx.x % 32 == 0) atomicAdd(&sums[begin / piece], sum);
}
"""

_SQUARES: Final = r"""
extern "C" __global__ void squares(const double* values, const long long* sizes, double* total) {
  double sum = 0.0;
  const long long step = (long long)gridDim.x * blockDim.x;
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < sizes[0]; i += step)
    sum += values[i] * values[i];
  for (int offset = 16; offset; offset /= 2) sum += __shfl_down_sync(0xffffffffu, sum, offset);
  if (threadIdx.x % 32 == 0) atomicAdd(total, sum);
}
"""

_COMPARE: Final = r"""
// Of magnitudes, NaN among them as the largest, the order is that of their bits without the sign.
__device__ unsigned long long magnitude_of(double value) {
  return (unsigned long long)__double_as_longlong(value) & 0x7fffffffffffffffULL;
}

__device__ void keep_largest(unsigned long long* place, double value) {
  unsigned long long bits = magnitude_of(value);
  for (int offset = 16; offset; offset /= 2) {
    const unsigned long long other = __shfl_down_sync(0xffffffffu, bits, offset);
    bits = other > bits ? other : bits;
  }
  if (threadIdx.x % 32 == 0) atomicMax(place, bits);
}

__device__ double larger(double one, double other) {  // NaN, where either is
  return magnitude_of(one) > magnitude_of(other) ? one : other;
}

extern "C" __global__ void compare(
    const float* actual, const double* expected, const float* reference, const long long* sizes,
    const double* rules, const double* squares, unsigned long long* found) {
  const double atol = rules[0], rtol = rules[1], smallest = rules[2];
  const double least = atol * fmax(sqrt(squares[0] / (double)sizes[0]), smallest);
  double own_largest = 0.0, largest = 0.0, relative = 0.0, own_relative = 0.0;
  unsigned long long wrong = 0;
  const long long step = (long long)gridDim.x * blockDim.x;
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < sizes[0]; i += step) {
    const double right = expected[i], magnitude = fabs(right), floor_ = fmax(magnitude, least);
    const double own = fabs((double)reference[i] - right), error = fabs((double)actual[i] - right);
    wrong += !(error <= least + rtol * magnitude);
    own_largest = larger(own_largest, own);
    largest = larger(largest, error);
    own_relative = larger(own_relative, own / floor_);
    relative = larger(relative, error / floor_);
  }
  keep_largest(&found[0], own_largest);
  keep_largest(&found[1], largest);
  keep_largest(&found[2], relative);
  keep_largest(&found[3], own_relative);
  for (int offset = 16; offset; offset /= 2) wrong += __shfl_down_sync(0xffffffffu, wrong, offset);
  if (threadIdx.x % 32 == 0) atomicAdd(&found[4], wrong);
}
"""


@dataclass(frozen=True)
class RightSlice:
    """What one pass over a slice has found: how many elements are ``wrong`` by the usual limits, and the largest errors
    of the reference in its own precision and of what was compared."""

    wrong: int
    own_max_abs: float
    max_abs: float
    max_rel: float
    own_max_rel: float


class Kernels:
    """The kernels, compiled for this process's device. Raises whatever compiling them raises."""

    def __init__(self) -> None:
        self._fingerprint = _compiled(_FINGERPRINT, "fingerprint")
        self._squares = _compiled(_SQUARES, "squares")
        self._compare = _compiled(_COMPARE, "compare")

    def fingerprint(self, words: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        """For each piece of ``words`` (int32, as many as there are ``weights``, int64) the sum of the words times
        their weights, modulo 2**64."""
        count, piece = words.numel(), weights.numel()
        share = min(_WORDS_OF_A_BLOCK, piece)
        assert piece % share == 0, "no block may lie in two pieces"
        sums = torch.zeros(-(-count // piece), dtype=torch.int64, device=words.device)
        sizes = _constant((count, piece, share), torch.int64, words.device)
        _launch(self._fingerprint, -(-count // share), [words, weights, sizes, sums])
        return sums

    def compare(
        self,
        actual: torch.Tensor,
        expected: torch.Tensor,
        reference: torch.Tensor,
        rules: tuple[float, float, float],
    ) -> RightSlice | None:
        """Hold ``actual`` against ``expected`` by ``rules``: absolute and relative tolerance, and the smallest scale.

        All of one shape: ``expected`` float64, the others float32; ``None`` where they are not.
        """
        if (actual.dtype, expected.dtype, reference.dtype) != (torch.float32, torch.float64, torch.float32) or not (
            actual.shape == expected.shape == reference.shape
        ):
            return None
        actual, expected, reference = actual.contiguous(), expected.contiguous(), reference.contiguous()
        device, count = expected.device, expected.numel()
        blocks = min(_MOST_BLOCKS, -(-count // _THREADS))
        sizes, given = _constant((count,), torch.int64, device), _constant(rules, torch.float64, device)
        squares = torch.zeros(1, dtype=torch.float64, device=device)
        found = torch.zeros(5, dtype=torch.int64, device=device)
        _launch(self._squares, blocks, [expected, sizes, squares])
        _launch(self._compare, blocks, [actual, expected, reference, sizes, given, squares, found])
        *largest, wrong = found.tolist()
        return RightSlice(wrong, *(struct.unpack("<d", struct.pack("<q", bits))[0] for bits in largest))


@lru_cache(maxsize=256)
def _constant(values: tuple[float, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Numbers on the device, not to be written to: bringing them there anew waits for all that is under way."""
    return torch.tensor(values, dtype=dtype, device=device)


@cache
def kernels() -> Kernels | None:
    """The kernels, compiled on first use; ``None`` where there is no NVRTC, no toolkit that torch finds, or a torch
    that does not offer it."""
    try:
        return Kernels()
    except Exception as error:  # noqa: BLE001 - private to torch, and what it raises differs by version
        print(
            f"the judge does without kernels of its own: {type(error).__name__}: {error}", file=sys.stderr, flush=True
        )
        return None


def _compiled(source: str, name: str) -> Any:
    return torch.cuda._compile_kernel(source, name)


def _launch(kernel: Any, blocks: int, arguments: list[torch.Tensor]) -> None:
    kernel(grid=(blocks, 1, 1), block=(_THREADS, 1, 1), args=arguments)
