"""Comparing a tensor with the float64 reference, slice by slice.

An element is right if ``|actual - expected| <= limit`` with ``limit = atol * scale + rtol * |expected|``,
where ``scale`` is the root mean square of the expected slice: neither zeros nor a constant can hide below
an absolute tolerance. Two things widen a limit, and both come from the reference alone:

- the reference's own error in the problem's precision, where it uses up more than a quarter of the limit;
- for gradients, how far the reference's gradient moves when its inputs move by half the tolerance (a
  backward error in the sense of numerical analysis). Next to a kink (ReLU at 0, a tie in max) rounding
  alone decides which side a correct candidate is on, and that is where this is not negligible.

Right elements are counted, not wrong ones, and every comparison is written so that NaN fails.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from evaluator.problem import Tolerance

__all__ = ["Tally", "Worst", "compare_slice"]

_REFERENCE_MARGIN = 4.0
_SMALLEST_SCALE = 1e-30


@dataclass(frozen=True)
class Worst:
    """The element that is furthest outside its limit."""

    index: tuple[int, ...]
    actual: float
    expected: float
    error: float
    allowed: float
    excess: float


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

    def describe(self) -> str:
        """Where and by how much it is wrong, in one sentence."""
        if self.worst is None:
            return f"{self.name}: {self.total - self.right} of {self.total} elements are wrong"
        worst, share = self.worst, 100 * (self.total - self.right) / self.total
        place = f"[{', '.join(map(str, worst.index))}]" if worst.index else "its only element"
        return (
            f"{self.name} differs from the reference: at {place} it is {worst.actual:.9g}, expected "
            f"{worst.expected:.9g} (error {worst.error:.3g}, allowed {worst.allowed:.3g}); "
            f"{share:.3g} % of {self.total} elements are wrong"
        )


def compare_slice(
    tally: Tally,
    actual: torch.Tensor,
    expected: torch.Tensor,
    reference: torch.Tensor,
    tolerance: Tolerance,
    sensitivity: torch.Tensor | None = None,
) -> None:
    """Add one slice to ``tally``.

    ``actual`` and ``reference`` (the reference in the problem's precision) have the problem's dtype,
    ``expected`` and ``sensitivity`` are float64; all have the same shape.
    """
    if not expected.is_floating_point():
        _compare_exactly(tally, actual, expected)
        return
    actual64, reference64 = actual.double(), reference.double()
    magnitude = expected.abs()
    scale = max(float(expected.square().mean().sqrt()), _SMALLEST_SCALE) if expected.numel() else 1.0
    limit = magnitude.mul(tolerance.rtol).add_(tolerance.atol * scale)
    if sensitivity is not None:
        limit.add_(sensitivity)
    own_error = reference64.sub_(expected).abs_()
    if not bool(torch.isfinite(own_error).all()):
        tally.finite = False
        return
    factor = max(1.0, _REFERENCE_MARGIN * _maximum(own_error / limit))
    limit.mul_(factor)
    tally.widened = max(tally.widened, factor)
    error = (actual64 - expected).abs_()
    right = error <= limit
    significant = magnitude > tolerance.atol * scale
    tally.reference_max_rel = max(tally.reference_max_rel, _relative(own_error, magnitude, significant))
    tally.max_rel = max(tally.max_rel, _relative(error, magnitude, significant))
    tally.max_abs = max(tally.max_abs, _maximum(error.nan_to_num(nan=math.inf)))
    count = int(right.sum())
    if count < right.numel():
        excess = (error / limit).nan_to_num(nan=math.inf).masked_fill_(right, -1.0)
        _note_worst(tally, excess, actual64, expected, error, limit)
    tally.right += count
    tally.total += right.numel()


def _note_worst(
    tally: Tally,
    excess: torch.Tensor,
    actual: torch.Tensor,
    expected: torch.Tensor,
    error: torch.Tensor,
    limit: torch.Tensor,
) -> None:
    at = int(excess.argmax())
    value = float(excess.view(-1)[at])
    if tally.worst is None or value > tally.worst.excess:
        tally.worst = Worst(
            _unravel(tally.total + at, tally.shape),
            float(actual.reshape(-1)[at]),
            float(expected.reshape(-1)[at]),
            float(error.view(-1)[at]),
            float(limit.view(-1)[at]),
            value,
        )


def _compare_exactly(tally: Tally, actual: torch.Tensor, expected: torch.Tensor) -> None:
    right = actual == expected
    count = int(right.sum())
    if count < right.numel() and tally.worst is None:
        at = int((~right).view(-1).to(torch.uint8).argmax())
        got, wanted = float(actual.reshape(-1)[at]), float(expected.reshape(-1)[at])
        tally.worst = Worst(_unravel(tally.total + at, tally.shape), got, wanted, abs(got - wanted), 0.0, math.inf)
    tally.right += count
    tally.total += right.numel()


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
