"""Comparing a tensor with the float64 reference, slice by slice.

An element is right if ``|actual - expected| <= limit`` with ``limit = atol * scale + rtol * |expected|``,
where ``scale`` is the root mean square of the expected slice: neither zeros nor a constant can hide below
an absolute tolerance. Two things widen a limit, and both come from the reference alone:

- the reference's own error in the problem's precision, where it uses up more than a quarter of the limit;
- for gradients, how far the reference's gradient moves when its inputs move by the relative tolerance (a
  backward error in the sense of numerical analysis). Next to a kink (ReLU at 0, a tie in max) rounding
  alone decides which side a correct candidate is on, and that is where this is not negligible.

Right elements are counted, not wrong ones, and every comparison is written so that NaN fails.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch

from evaluator.problem import Tolerance

__all__ = ["SliceComparison", "Tally", "Worst", "compare_slice"]

_REFERENCE_MARGIN = 4.0
_SMALLEST_SCALE = 1e-30


@dataclass(frozen=True)
class Worst:
    """The element that is furthest outside its limit; ``flat`` counts elements in memory order."""

    flat: int
    actual: float
    expected: float
    error: float
    allowed: float
    excess: float


@dataclass(frozen=True)
class SliceComparison:
    """What comparing one slice showed. ``suspect``: something is wrong, or the limit had to be widened."""

    total: int
    right: int
    max_abs: float = 0.0
    max_rel: float = 0.0
    reference_max_rel: float = 0.0
    widened: float = 1.0
    worst: Worst | None = None
    finite: bool = True

    @property
    def suspect(self) -> bool:
        return self.finite and (self.right < self.total or self.widened > 1.0)


@dataclass
class Tally:
    """What was found about one tensor over all its slices."""

    name: str
    shape: tuple[int, ...]
    total: int = 0
    right: int = 0
    max_abs: float = 0.0
    max_rel: float = 0.0
    reference_max_rel: float = 0.0
    widened: float = 1.0
    worst: Worst | None = None
    finite: bool = True
    """Whether the reference is finite here: a variant on which it is not says nothing."""

    @property
    def passed(self) -> bool:
        return self.right == self.total == math.prod(self.shape)

    def add(self, found: SliceComparison) -> None:
        """Take in the next slice; slices come in the order of their elements."""
        worst = found.worst
        if worst is not None and (self.worst is None or worst.excess > self.worst.excess):
            self.worst = replace(worst, flat=worst.flat + self.total)
        self.total += found.total
        self.right += found.right
        self.max_abs = max(self.max_abs, found.max_abs)
        self.max_rel = max(self.max_rel, found.max_rel)
        self.reference_max_rel = max(self.reference_max_rel, found.reference_max_rel)
        self.widened = max(self.widened, found.widened)
        self.finite = self.finite and found.finite

    def describe(self) -> str:
        """Where and by how much it is wrong, in one sentence."""
        if self.worst is None:
            return f"{self.name}: {self.total - self.right} of {self.total} elements are wrong"
        worst, share = self.worst, 100 * (self.total - self.right) / self.total
        index = _unravel(worst.flat, self.shape)
        place = f"[{', '.join(map(str, index))}]" if index else "its only element"
        return (
            f"{self.name} differs from the reference: at {place} it is {worst.actual:.9g}, expected "
            f"{worst.expected:.9g} (error {worst.error:.3g}, allowed {worst.allowed:.3g}); "
            f"{share:.3g} % of {self.total} elements are wrong"
        )


def compare_slice(
    actual: torch.Tensor,
    expected: torch.Tensor,
    reference: torch.Tensor,
    tolerance: Tolerance,
    sensitivity: torch.Tensor | None = None,
) -> SliceComparison:
    """Compare one slice.

    ``actual`` and ``reference`` (the reference in the problem's precision) have the problem's dtype,
    ``expected`` and ``sensitivity`` are float64; all have the same shape.
    """
    if not expected.is_floating_point():
        return _compare_exactly(actual, expected)
    actual64, reference64 = actual.double(), reference.double()
    magnitude = expected.abs()
    scale = max(float(expected.square().mean().sqrt()), _SMALLEST_SCALE) if expected.numel() else 1.0
    limit = magnitude.mul(tolerance.rtol).add_(tolerance.atol * scale)
    if sensitivity is not None:
        limit.add_(sensitivity)
    own_error = reference64.sub_(expected).abs_()
    if not bool(torch.isfinite(own_error).all()):
        return SliceComparison(expected.numel(), 0, finite=False)
    widened = max(1.0, _REFERENCE_MARGIN * _maximum(own_error / limit))
    limit.mul_(widened)
    error = (actual64 - expected).abs_()
    right = error <= limit
    significant = magnitude > tolerance.atol * scale
    count = int(right.sum())
    worst = None
    if count < right.numel():
        excess = (error / limit).nan_to_num(nan=math.inf).masked_fill_(right, -1.0).view(-1)
        at = int(excess.argmax())
        figures = (float(tensor.reshape(-1)[at]) for tensor in (actual64, expected, error, limit, excess))
        worst = Worst(at, *figures)
    return SliceComparison(
        total=right.numel(),
        right=count,
        max_abs=_maximum(error.nan_to_num(nan=math.inf)),
        max_rel=_relative(error, magnitude, significant),
        reference_max_rel=_relative(own_error, magnitude, significant),
        widened=widened,
        worst=worst,
    )


def _compare_exactly(actual: torch.Tensor, expected: torch.Tensor) -> SliceComparison:
    right = (actual == expected).reshape(-1)
    count = int(right.sum())
    if count == right.numel():
        return SliceComparison(count, count)
    at = int((~right).to(torch.uint8).argmax())
    got, wanted = float(actual.reshape(-1)[at]), float(expected.reshape(-1)[at])
    return SliceComparison(
        right.numel(), count, worst=Worst(at, got, wanted, abs(got - wanted), 0.0, math.inf), max_abs=abs(got - wanted)
    )


def _relative(error: torch.Tensor, magnitude: torch.Tensor, significant: torch.Tensor) -> float:
    return _maximum((error / magnitude)[significant].nan_to_num(nan=math.inf))


def _maximum(values: torch.Tensor) -> float:
    return float(values.max()) if values.numel() else 0.0


def _unravel(flat: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    index = []
    for extent in reversed(shape):
        flat, position = divmod(flat, extent)
        index.append(position)
    return tuple(reversed(index))
