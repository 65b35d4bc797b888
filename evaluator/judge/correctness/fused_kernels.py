"""The judge's most frequent memory operations, each in one pass on CUDA: fingerprints and comparisons.

Torch's own operations read the memory several times for the same (``benchmarks/judge_kernels.py``). NVRTC compiles the
kernels when they are first needed. Where that does not work, torch's operations do everything, with the same results.
"""

from __future__ import annotations

import ctypes
import struct
import sys
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, Final

import torch

from evaluator.judge.correctness.limits import FAR_ABOVE, GOLDEN, NOTHING, QUANTILES, SAMPLE
from evaluator.protocol.shared_memory import check, driver

__all__ = ["Kernels", "SliceDeviation", "SliceDeviations", "SliceErrors", "kernels"]

_THREADS: Final = 256
_WORDS_OF_A_BLOCK: Final = 2**13
_MAX_BLOCKS: Final = 2048
_MAX_PLACES: Final = 2**18
"""The locations of up to this many wrong elements are returned: a planted row or two of a large tensor."""

# Torch 2.9 puts extern "C" before a source that does not begin with it, which no template may have.
_SUMS: Final = r"""extern "C" {}

#define WARPS_AT_MOST 32

// In the first thread of a block: the sum over all of its threads.
template <typename T> __device__ T sum_in_block(T value) {
  __shared__ T parts[WARPS_AT_MOST];
  for (int offset = 16; offset; offset /= 2) value += __shfl_down_sync(0xffffffffu, value, offset);
  __syncthreads();  // it may be asked for several sums
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = value;
  __syncthreads();
  T sum = 0;
  if (threadIdx.x == 0)
    for (int warp = 0; warp < blockDim.x / 32; ++warp) sum += parts[warp];
  return sum;
}
"""

_FINGERPRINT: Final = r"""
extern "C" __global__ void fingerprint(
    const int* words, const long long* weights, const long long* sizes, unsigned long long* sums) {
  const long long count = sizes[0], piece = sizes[1], share = sizes[2];
  const long long begin = blockIdx.x * share, end = min(begin + share, count);
  const long long first = begin / piece * piece, step = blockDim.x;
  unsigned long long sum = 0;
  long long i = begin + threadIdx.x;
  for (; i + 3 * step < end; i += 4 * step) {  // as many at a time as keep the memory busy
    long long word[4], weight[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) word[k] = words[i + k * step], weight[k] = weights[i + k * step - first];
#pragma unroll
    for (int k = 0; k < 4; ++k) sum += (unsigned long long)(word[k] * weight[k]);
  }
  for (; i < end; i += step) sum += (unsigned long long)((long long)words[i] * weights[i - first]);
  sum = sum_in_block(sum);
  if (threadIdx.x == 0) atomicAdd(&sums[begin / piece], sum);
}
"""

_SQUARES: Final = r"""
extern "C" __global__ void squares(const double* values, const long long* sizes, double* total) {
  const long long count = sizes[0], step = (long long)gridDim.x * blockDim.x;
  double sum = 0.0;
  long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  for (; i + 3 * step < count; i += 4 * step) {
    double value[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) value[k] = values[i + k * step];
#pragma unroll
    for (int k = 0; k < 4; ++k) sum += value[k] * value[k];
  }
  for (; i < count; i += step) sum += values[i] * values[i];
  sum = sum_in_block(sum);
  if (threadIdx.x == 0) atomicAdd(total, sum);
}
"""

_TYPICAL: Final = (
    rf"""
#define SAMPLE {SAMPLE}
#define GOLDEN {GOLDEN!r}
#define FAR_ABOVE {FAR_ABOVE!r}
#define NOTHING {NOTHING!r}
#define QUANTILES {{{", ".join(repr(quantile) for quantile, _ in QUANTILES)}}}
#define FACTORS {{{", ".join(repr(factor) for _, factor in QUANTILES)}}}
#define KINDS {len(QUANTILES)}
"""
    r"""
// How many of the first ``count`` of what is in order are less than ``value`` or, if ``too``, equal to it as well.
__device__ int below(const double* ordered, int count, double value, bool too) {
  int begin = 0, end = count;
  while (begin < end) {
    const int middle = (begin + end) / 2;
    if (ordered[middle] < value || (too && ordered[middle] == value)) begin = middle + 1; else end = middle;
  }
  return begin;
}

// One block of threads does it all: ``limits.typical_magnitude`` says what.
extern "C" __global__ void typical(const double* values, const long long* sizes, double* found) {
  __shared__ double sample[SAMPLE];
  const long long count = sizes[0];
  const double infinite = __longlong_as_double(0x7ff0000000000000LL);
  for (int i = threadIdx.x; i < SAMPLE; i += blockDim.x) {
    double magnitude = infinite;
    if (i < count) {
      const double multiple = __dmul_rn(__dadd_rn((double)i, 0.5), GOLDEN);
      const long long at = count > SAMPLE ? (long long)__dmul_rn(multiple - trunc(multiple), (double)count) : i;
      magnitude = fabs(values[at]);
    }
    sample[i] = magnitude < infinite ? magnitude : infinite;  // NaN counts no more than what is infinite
  }
  for (int length = 2; length <= SAMPLE; length *= 2) {  // a bitonic sort
    for (int distance = length / 2; distance; distance /= 2) {
      __syncthreads();
      for (int i = threadIdx.x; i < SAMPLE; i += blockDim.x) {
        const int other = i ^ distance;
        if (other < i) continue;
        const double one = sample[i], two = sample[other];
        if ((one > two) == !(i & length)) sample[i] = two, sample[other] = one;
      }
    }
  }
  __syncthreads();
  if (threadIdx.x) return;
  int end = below(sample, SAMPLE, infinite, false);
  if (end > 1 && sample[end - 2] == sample[end - 1]) {
    const int first = below(sample, end, sample[end - 1], false);
    const double others = first ? sample[first - 1] : 0.0;
    if (others > 0.0 && sample[end - 1] > FAR_ABOVE * others) end = first;
  }
  const int begin = end ? below(sample, end, NOTHING * sample[end - 1], true) : 0;
  const double quantiles[] = QUANTILES, factors[] = FACTORS;
  double least = infinite;
  for (int k = 0; k < KINDS; ++k) {
    const int place = (int)(quantiles[k] * (double)(end - begin));
    if (begin + place < end) least = fmin(least, sample[begin + place] * factors[k]);
  }
  found[0] = least;
}
"""
)

_ERRORS: Final = (
    rf"""
#define MOST_PLACES {_MAX_PLACES}
"""
    r"""
// Of magnitudes, NaN among them as the largest, the order is that of their bits without the sign.
__device__ unsigned long long magnitude_of(double value) {
  return (unsigned long long)__double_as_longlong(value) & 0x7fffffffffffffffULL;
}

__device__ double larger(double one, double other) {  // NaN, where either is
  return magnitude_of(one) > magnitude_of(other) ? one : other;
}

__device__ void keep_largest(unsigned long long* place, double value) {
  __shared__ unsigned long long most;
  __syncthreads();
  if (threadIdx.x == 0) most = 0;
  __syncthreads();
  for (int offset = 16; offset; offset /= 2) value = larger(value, __shfl_down_sync(0xffffffffu, value, offset));
  if (threadIdx.x % 32 == 0) atomicMax(&most, magnitude_of(value));
  __syncthreads();
  if (threadIdx.x == 0) atomicMax(place, most);
}

// ``rules``: absolute and relative tolerance, the smallest scale and step. ``typical``: the magnitude that most have.
struct Rules {
  double least, rtol;
  __device__ Rules(const double* rules, const double* typical, const double* squares, long long count)
      : rtol(rules[1]) {
    const double mean = sqrt(squares[0] / (double)count);
    // Where the mean is NaN, so is every limit; fmin and fmax would return the other one.
    const double scale = mean != mean ? mean : fmax(fmin(mean, typical[0]), rules[2]);
    least = rules[0] * scale + rules[3];
  }
};

struct Errors {
  unsigned long long* noted;
  long long* places;
  double own_largest = 0.0, largest = 0.0, relative = 0.0, own_relative = 0.0;
  unsigned long long wrong = 0;
  __device__ Errors(unsigned long long* noted, long long* places) : noted(noted), places(places) {}
  __device__ void take(long long place, double right, double value, double own_value, const Rules& rules) {
    const double magnitude = fabs(right), floor_ = fmax(magnitude, rules.least);
    const double own = fabs(own_value - right), error = fabs(value - right);
    if (!(error <= rules.least + rules.rtol * magnitude)) {
      ++wrong;
      // Looked at first: where everything is wrong, all would wait for one another to count.
      if (*(volatile unsigned long long*)noted < MOST_PLACES) {
        const unsigned long long number = atomicAdd(noted, 1ULL);
        if (number < MOST_PLACES) places[number] = place;
      }
    }
    own_largest = larger(own_largest, own);
    largest = larger(largest, error);
    own_relative = larger(own_relative, own / floor_);
    relative = larger(relative, error / floor_);
  }
};

struct Deviation {
  double largest = 0.0, sum = 0.0;
  unsigned long long wrong = 0, counted = 0;
  __device__ void take(double right, double value, const Rules& rules) {
    const double excess = fabs(value - right) / (rules.least + rules.rtol * fabs(right));
    wrong += !(excess <= 1.0);
    counted += right != 0.0 || value != 0.0;
    largest = larger(largest, excess);
    sum += fabs(value);
  }
  __device__ void give(unsigned long long* found, double* magnitude) {
    keep_largest(&found[0], largest);
    const unsigned long long all_wrong = sum_in_block(wrong), all_counted = sum_in_block(counted);
    const double all = sum_in_block(sum);
    if (threadIdx.x == 0) {
      atomicAdd(&found[1], all_wrong);
      atomicAdd(&found[2], all_counted);
      atomicAdd(magnitude, all);
    }
  }
};

struct Deviations {
  Deviation actual, own;
  double right_sum = 0.0;
  __device__ void take(long long, double right, double value, double own_value, const Rules& rules) {
    actual.take(right, value, rules);
    own.take(right, own_value, rules);
    right_sum += fabs(right);
  }
};

// Has ``found`` take each element in, four at a time: as many as keep the memory busy.
template <typename Found> __device__ void take_each(
    Found& found, const float* actual, const double* expected, const float* reference, long long count,
    const Rules& rules) {
  const long long step = (long long)gridDim.x * blockDim.x;
  long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  for (; i + 3 * step < count; i += 4 * step) {
    double right[4];
    float value[4], own[4];
#pragma unroll
    for (int k = 0; k < 4; ++k)
      right[k] = expected[i + k * step], value[k] = actual[i + k * step], own[k] = reference[i + k * step];
#pragma unroll
    for (int k = 0; k < 4; ++k) found.take(i + k * step, right[k], value[k], own[k], rules);
  }
  for (; i < count; i += step) found.take(i, expected[i], actual[i], reference[i], rules);
}
"""
)

_COMPARE: Final = r"""
extern "C" __global__ void compare(
    const float* actual, const double* expected, const float* reference, const long long* sizes,
    const double* rules, const double* typical, const double* squares, unsigned long long* found, long long* places) {
  const Rules limits(rules, typical, squares, sizes[0]);
  Errors errors(&found[5], places);
  take_each(errors, actual, expected, reference, sizes[0], limits);
  if (blockIdx.x == 0 && threadIdx.x == 0) found[6] = magnitude_of(limits.least);
  keep_largest(&found[0], errors.own_largest);
  keep_largest(&found[1], errors.largest);
  keep_largest(&found[2], errors.relative);
  keep_largest(&found[3], errors.own_relative);
  const unsigned long long wrong = sum_in_block(errors.wrong);
  if (threadIdx.x == 0) atomicAdd(&found[4], wrong);
}
"""

_DEVIATION: Final = r"""
extern "C" __global__ void deviation(
    const float* actual, const double* expected, const float* reference, const long long* sizes,
    const double* rules, const double* typical, const double* squares, unsigned long long* found, double* magnitudes) {
  Deviations deviations;
  take_each(deviations, actual, expected, reference, sizes[0], Rules(rules, typical, squares, sizes[0]));
  deviations.actual.give(&found[0], &magnitudes[0]);
  deviations.own.give(&found[3], &magnitudes[1]);
  const double right_sum = sum_in_block(deviations.right_sum);
  if (threadIdx.x == 0) atomicAdd(&magnitudes[2], right_sum);
}
"""


@dataclass(frozen=True)
class SliceErrors:
    """The result of one pass over a slice. ``wrong``: the number of elements outside of the usual limits. ``least``:
    the usual limit of a zero. The others are the largest errors of the native-precision reference and of ``actual``.
    ``places``: the wrong elements (int64, counted row by row), unordered; ``None`` where they are many."""

    wrong: int
    least: float
    native_max_abs: float
    max_abs: float
    max_rel: float
    native_max_rel: float
    places: torch.Tensor | None


@dataclass(frozen=True)
class SliceDeviation:
    """The deviation of a slice. ``wrong``: the number of elements outside of the usual limits. ``counted``: the number
    of elements without common zeros. ``excess``: the largest error as a multiple of its limit. ``magnitude``: the sum
    of magnitudes."""

    wrong: int
    counted: int
    excess: float
    magnitude: float


@dataclass(frozen=True)
class SliceDeviations:
    """The result of one pass over a slice: the deviations of ``actual`` and of the native-precision reference, and the
    sum of the right magnitudes."""

    actual: SliceDeviation
    own: SliceDeviation
    right_magnitude: float


class Kernels:
    """The kernels, compiled for this process's device. Raises the errors of their compilation."""

    def __init__(self) -> None:
        self._fingerprint = _compiled(_SUMS + _FINGERPRINT, "fingerprint")
        self._squares = _compiled(_SUMS + _SQUARES, "squares")
        self._typical = _compiled(_SUMS + _TYPICAL, "typical")
        self._compare = _compiled(_SUMS + _ERRORS + _COMPARE, "compare")
        self._deviation = _compiled(_SUMS + _ERRORS + _DEVIATION, "deviation")

    def fingerprint(self, words: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        """Return for each piece of ``words`` (int32, as many as there are ``weights``, int64) the sum of the words
        times their weights, modulo 2**64."""
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
        rules: tuple[float, float, float, float],
    ) -> SliceErrors | None:
        """Compare ``actual`` with ``expected`` by ``rules``: absolute and relative tolerance, the smallest scale and
        the smallest step.

        All have one shape, on CUDA: ``expected`` float64, the others float32; ``None`` where they do not.
        """
        if not _are_comparable(actual, expected, reference):
            return None
        found = torch.zeros(7, dtype=torch.int64, device=expected.device)
        places = torch.empty(_MAX_PLACES, dtype=torch.int64, device=expected.device)
        self._hold_against(self._compare, actual, expected, reference, rules, [found, places])
        *largest, wrong, _, least = found.tolist()
        native_max_abs, max_abs, max_rel, native_max_rel = map(_as_double, largest)
        few = places[:wrong] if wrong <= _MAX_PLACES else None
        return SliceErrors(wrong, _as_double(least), native_max_abs, max_abs, max_rel, native_max_rel, few)

    def typical_magnitude(self, expected: torch.Tensor) -> torch.Tensor:
        """Return ``limits.typical_magnitude`` of a float64 tensor on CUDA, as one element."""
        found = torch.empty(1, dtype=torch.float64, device=expected.device)
        sizes = _constant((expected.numel(),), torch.int64, expected.device)
        _launch(self._typical, 1, [expected.contiguous(), sizes, found])
        return found

    def deviation(
        self,
        actual: torch.Tensor,
        expected: torch.Tensor,
        reference: torch.Tensor,
        rules: tuple[float, float, float, float],
    ) -> SliceDeviations | None:
        """Return the deviations of ``actual`` and ``reference`` from ``expected``; arguments as for ``compare``."""
        if not _are_comparable(actual, expected, reference):
            return None
        found = torch.zeros(6, dtype=torch.int64, device=expected.device)
        magnitudes = torch.zeros(3, dtype=torch.float64, device=expected.device)
        self._hold_against(self._deviation, actual, expected, reference, rules, [found, magnitudes])
        *sums, right_sum = magnitudes.tolist()
        excess, wrong, counted, own_excess, own_wrong, own_counted = found.tolist()
        return SliceDeviations(
            SliceDeviation(wrong, counted, _as_double(excess), sums[0]),
            SliceDeviation(own_wrong, own_counted, _as_double(own_excess), sums[1]),
            right_sum,
        )

    def _hold_against(
        self,
        kernel: Any,
        actual: torch.Tensor,
        expected: torch.Tensor,
        reference: torch.Tensor,
        rules: tuple[float, float, float, float],
        results: list[torch.Tensor],
    ) -> None:
        actual, expected, reference = actual.contiguous(), expected.contiguous(), reference.contiguous()
        device, count = expected.device, expected.numel()
        blocks = min(_MAX_BLOCKS, -(-count // _THREADS))
        sizes, given = _constant((count,), torch.int64, device), _constant(rules, torch.float64, device)
        squares = torch.zeros(1, dtype=torch.float64, device=device)
        _launch(self._squares, blocks, [expected, sizes, squares])
        typical = self.typical_magnitude(expected)
        _launch(kernel, blocks, [actual, expected, reference, sizes, given, typical, squares, *results])


def _are_comparable(actual: torch.Tensor, expected: torch.Tensor, reference: torch.Tensor) -> bool:
    dtypes = actual.dtype, expected.dtype, reference.dtype
    if not (actual.is_cuda and expected.is_cuda and reference.is_cuda):
        return False
    return dtypes == (torch.float32, torch.float64, torch.float32) and actual.shape == expected.shape == reference.shape


def _as_double(bits: int) -> float:
    return float(struct.unpack("<d", struct.pack("<q", bits))[0])


@lru_cache(maxsize=256)
def _constant(values: tuple[float, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Return numbers on the device, which must not be written to. A new transfer would wait for all work under way."""
    return torch.tensor(values, dtype=dtype, device=device)


@cache
def kernels() -> Kernels | None:
    """Return the kernels, compiled on first use; ``None`` without NVRTC, without a toolkit that torch finds, or with a
    torch that does not offer it."""
    try:
        return Kernels()
    except Exception as error:  # noqa: BLE001 - private to torch, and what it raises differs by version
        print(
            f"the judge does without kernels of its own: {type(error).__name__}: {error}", file=sys.stderr, flush=True
        )
        return None


def _compiled(source: str, name: str) -> ctypes.c_void_p:
    """Return the kernel's handle of the driver."""
    function = torch.cuda._compile_kernel(source, name).func
    assert isinstance(function, ctypes.c_void_p)
    return function


def _launch(kernel: ctypes.c_void_p, blocks: int, arguments: list[torch.Tensor]) -> None:
    """Launch a kernel. Torch's own way opens the driver's library anew for every launch, which takes longer than the
    launch."""
    pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in arguments]
    given = (ctypes.c_void_p * len(pointers))(*map(ctypes.addressof, pointers))
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    check(driver().cuLaunchKernel(kernel, blocks, 1, 1, _THREADS, 1, 1, 0, stream, given, None), "cuLaunchKernel")
