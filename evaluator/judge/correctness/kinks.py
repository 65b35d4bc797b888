"""Kinks: elements of a gradient that rounding alone puts on one side of a ReLU at 0, or of a tie in a maximum.

All are pure functions of compared tensors. At a kink a few elements of a gradient are far off, and both sides are
right; the total gradient is about the same on either.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import torch

from evaluator.judge.correctness.fused_kernels import SliceDeviation, kernels
from evaluator.judge.correctness.limits import ROUNDING_FACTOR, fused_rules, usual_limits
from evaluator.problems.problem import Tolerance

__all__ = ["FEW", "Deviation", "deviations", "is_expected", "is_whole"]

FEW: Final = 1e-3
"""Elements next to a kink are at most this share of a gradient; a deviation at more is never expected."""
_NATIVE_FACTOR: Final = 4.0
_ALL_ROUNDING: Final = 2.0
"""A native-precision gradient is all rounding where its magnitudes add up to this many times those of the exact one."""
_MISSING: Final = 0.1
"""The sum of a gradient's magnitudes may differ by this share from the reference's, where deviations are excused."""


@dataclass(frozen=True)
class Deviation:
    """The deviation of a tensor from the float64 reference before limits are widened. ``share``: of the elements
    outside of their limits, not counting common zeros. ``excess``: the largest error as a multiple of its limit.
    ``magnitude``: the sum of magnitudes as a multiple of the reference's."""

    share: float
    excess: float
    magnitude: float

    def joined(self, other: Deviation) -> Deviation:
        """Return the deviation with the larger share and excess."""
        return Deviation(max(self.share, other.share), max(self.excess, other.excess), self.magnitude)


def deviations(
    actual: torch.Tensor, expected: torch.Tensor, reference: torch.Tensor | None, tolerance: Tolerance
) -> tuple[Deviation, Deviation]:
    """Return the deviations of ``actual`` and of the native-precision reference; arguments as for ``compare_slice``.
    Without a ``reference``, both are that of ``actual``."""
    own = actual if reference is None else reference
    fused = kernels() if expected.is_cuda and expected.numel() else None
    seen = None if fused is None else fused.deviation(actual, expected, own, fused_rules(tolerance, actual.dtype))
    if seen is not None:
        ours, theirs = (_as_deviation(one, seen.right_magnitude) for one in (seen.actual, seen.own))
        return ours, theirs
    limit = usual_limits(expected, tolerance, actual.dtype).limit
    deviation = _deviate(actual, expected, limit)
    return deviation, deviation if reference is None else _deviate(reference, expected, limit)


def is_expected(seen: Deviation, known: Deviation) -> bool:
    """Whether a gradient deviates at about as many elements, and about as far, as is ``known`` to happen."""
    return seen.share <= 2 * known.share and seen.excess <= 4 * known.excess


def is_whole(seen: Deviation, own: Deviation | None) -> bool:
    """Whether a gradient's magnitudes add up to about those of the exact one. Where the native-precision gradient
    ``own`` is all rounding, the candidate's may be as well."""
    if own is None:
        return abs(seen.magnitude - 1.0) <= _MISSING
    factor = ROUNDING_FACTOR if own.magnitude >= _ALL_ROUNDING else _NATIVE_FACTOR
    return abs(seen.magnitude - 1.0) <= max(_MISSING, factor * abs(own.magnitude - 1.0))


def _as_deviation(seen: SliceDeviation, whole: float) -> Deviation:
    excess = math.inf if math.isnan(seen.excess) else seen.excess
    return Deviation(seen.wrong / max(1, seen.counted), excess, _share_of(seen.magnitude, whole))


def _deviate(values: torch.Tensor, expected: torch.Tensor, limit: torch.Tensor) -> Deviation:
    excess = (values.double() - expected).abs_().div_(limit)
    wrong = excess.numel() - int((excess <= 1.0).sum())
    counted = int(((expected != 0) | (values != 0)).sum())
    largest = float(excess.nan_to_num(nan=math.inf).max()) if excess.numel() else 0.0
    return Deviation(
        wrong / max(1, counted), largest, _share_of(_sum_of_magnitudes(values), _sum_of_magnitudes(expected))
    )


def _sum_of_magnitudes(values: torch.Tensor) -> float:
    return float(values.double().abs().sum())


def _share_of(magnitude: float, whole: float) -> float:
    return magnitude / whole if whole else 1.0
