"""The time that the judge's own kernels save on a GPU: ``python -m benchmarks.judge_kernels``.

It runs a fingerprint of a slice, a comparison of a correct slice, and the deviations of a slice from the correct
values. Each is done by the kernels and by torch's operations, in turn in one process. It prints the median of each and
their ratio.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median
from types import ModuleType

import torch

from evaluator.judge.correctness import compare, fingerprint, kinks
from evaluator.judge.correctness.fused_kernels import kernels
from evaluator.problems.problem import Tolerance

_ELEMENTS = 2**25
_ROUNDS = 30


def main() -> int:
    if not torch.cuda.is_available() or kernels() is None:
        print("this needs a CUDA device, and NVRTC")
        return 2
    expected = torch.randn(_ELEMENTS, device="cuda", dtype=torch.float64)
    own = expected.float()
    fingerprints = fingerprint.Fingerprinter(torch.Generator("cuda").manual_seed(1))
    tolerance = Tolerance(atol=1e-4, rtol=1e-4)
    print(f"{'of 2^25 float32':<18}{'kernel':>12}{'torch':>12}{'ratio':>8}")
    _row("fingerprint", fingerprint, lambda: fingerprints.of(own))
    _row("comparison", compare, lambda: compare.compare_slice(own, expected, own, tolerance))
    _row("deviation", kinks, lambda: kinks.deviations(own, expected, own, tolerance))
    return 0


def _row(name: str, module: ModuleType, work: Callable[[], object]) -> None:
    fused, plain = [], []
    for _ in range(_ROUNDS):
        fused.append(_seconds(work))
        with _without_kernels(module):
            plain.append(_seconds(work))
    ours, theirs = median(fused), median(plain)
    print(f"{name:<18}{1000 * ours:>9.3f} ms{1000 * theirs:>9.3f} ms{theirs / ours:>8.1f}")


def _seconds(work: Callable[[], object]) -> float:
    torch.cuda.synchronize()
    begin = time.perf_counter()
    work()
    torch.cuda.synchronize()
    return time.perf_counter() - begin


@contextmanager
def _without_kernels(module: ModuleType) -> Iterator[None]:
    known = module.kernels
    module.kernels = lambda: None  # type: ignore[attr-defined]
    try:
        yield
    finally:
        module.kernels = known  # type: ignore[attr-defined]


if __name__ == "__main__":
    sys.exit(main())
