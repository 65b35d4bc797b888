"""Comparing a tensor with the float64 reference, slice by slice.

An element is right if ``|actual - expected| <= limit`` with ``limit = atol * scale + rtol * |expected|``,
where ``scale`` is the root mean square of the expected slice: neither zeros nor a constant can hide below
an absolute tolerance. Three things widen a limit, and all come from the reference alone; none is asked for where
everything is right without it:

- the reference's own error in the problem's precision, where it uses up more than a quarter of the limit;
- for outputs of which little is wrong, how far the reference's output moves when its inputs are rounded otherwise:
  where that is more than the limit, nobody who computes in this precision knows better;
- for gradients, how far the reference's gradient moves when its inputs move by the relative tolerance (a
  backward error in the sense of numerical analysis). Next to a kink (ReLU at 0, a tie in max) rounding
  alone decides which side a correct candidate is on, and that is where this is not negligible.

Right elements are counted, not wrong ones, and every comparison is written so that NaN fails.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import torch

from evaluator.judge.kernels import SliceErrors, kernels
from evaluator.judge.mismatch import Evidence
from evaluator.problem import Tolerance

__all__ = [
    "REFERENCE_MARGIN",
    "Departure",
    "SliceComparison",
    "Tally",
    "Worst",
    "compare_slice",
    "compare_usually",
    "departures",
    "usual_limit",
]

REFERENCE_MARGIN = 4.0
_SMALLEST_SCALE = 1e-30
_PIECE: Final = 2**15
"""So few elements that what is computed on the way stays in a processor's own cache, and that one thread has all of
them: others would have to be woken for each step. All of a million at a time took three times as long."""


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


@dataclass(frozen=True)
class Departure:
    """How a tensor departs from the float64 reference before anything widens a limit: the ``share`` of its elements,
    zeros of both not counted, that are outside of theirs; the largest error as a multiple of its limit; and the
    sum of its magnitudes as a multiple of the reference's."""

    share: float
    excess: float
    magnitude: float

    def joined(self, other: Departure) -> Departure:
        """The larger share and excess."""
        return Departure(max(self.share, other.share), max(self.excess, other.excess), self.magnitude)


@dataclass
class Tally:
    """What was found about one tensor over all its slices, or in some of its ``rows`` (then ``shape`` is theirs)."""

    name: str
    shape: tuple[int, ...]
    rows: Sequence[int] | None = None
    total: int = 0
    right: int = 0
    max_abs: float = 0.0
    max_rel: float = 0.0
    reference_max_rel: float = 0.0
    widened: float = 1.0
    worst: Worst | None = None
    finite: bool = True
    """Whether the reference is finite here: a variant on which it is not says nothing."""
    evidence: Evidence | None = None
    """What was kept of the wrong elements, where there are any."""
    blind: bool = False
    """There was no memory to look closely."""

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

    def examine(
        self,
        actual: torch.Tensor,
        expected: torch.Tensor,
        reference: torch.Tensor,
        tolerance: Tolerance,
        sensitivity: torch.Tensor | None = None,
    ) -> None:
        """Look closely at the slice that was added last, which is wrong; the arguments are ``compare_slice``'s."""
        if self.blind or self.rows is not None:
            return
        self.evidence = self.evidence or Evidence(self.shape, actual.dtype)
        try:
            limit = None
            if expected.is_floating_point():
                limits = _limits(expected, reference, tolerance, sensitivity)
                limit = limits.limit.mul_(limits.widened())
                del limits
            self.evidence.add(actual, expected, limit, self.total - actual.numel())
        except torch.OutOfMemoryError:
            # The verdict stands without it, and must not become another one.
            self.evidence, self.blind = None, True

    def describe(self) -> str:
        """Where and by how much it is wrong, in one sentence."""
        if self.worst is None:
            return f"{self.name}: {self.total - self.right} of {self.total} elements are wrong"
        worst, share = self.worst, 100 * (self.total - self.right) / self.total
        index = _unravel(worst.flat, self.shape)
        if self.rows is not None:
            index = (self.rows[index[0]], *index[1:])
        place = f"[{', '.join(map(str, index))}]" if index else "its only element"
        return (
            f"{self.name} differs from the reference: at {place} it is {worst.actual:.9g}, expected "
            f"{worst.expected:.9g} (error {worst.error:.3g}, allowed {worst.allowed:.3g}); "
            f"{share:.3g} % of {self.total} elements are wrong"
            + (f" in {len(self.rows)} rows that were looked at" if self.rows is not None else "")
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
    if sensitivity is None:
        usual = compare_usually(actual, expected, reference, tolerance)
        if usual is not None and usual.right == usual.total:
            return usual
    limits = _limits(expected, reference, tolerance, sensitivity)
    if not bool(torch.isfinite(limits.own_error).all()):
        return SliceComparison(expected.numel(), 0, finite=False)
    actual64, magnitude, limit, widened = actual.double(), expected.abs(), limits.limit, 1.0
    error = (actual64 - expected).abs_()
    right = error <= limit
    if not bool(right.all()):
        widened = limits.widened()
        right = error <= limit.mul_(widened)
    magnitude.clamp_(min=tolerance.atol * limits.scale)
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
        max_rel=_relative(error, magnitude),
        reference_max_rel=_relative(limits.own_error, magnitude),
        widened=widened,
        worst=worst,
    )


def compare_usually(
    actual: torch.Tensor, expected: torch.Tensor, reference: torch.Tensor, tolerance: Tolerance
) -> SliceComparison | None:
    """What ``compare_slice`` says before anything widens a limit, without the worst element; ``None`` of integers,
    where the reference is not finite, and where there is nothing to compare.

    Nearly every comparison comes to an end here, and this goes over the memory half as often.
    """
    if not expected.is_floating_point() or not expected.numel():
        return None
    fused = kernels() if expected.is_cuda else None
    if fused is not None:
        seen = fused.compare(actual, expected, reference, _rules(tolerance))
        if seen is not None:
            return _as_comparison(seen, expected.numel())
    least = tolerance.atol * _scale(expected)
    pieces = list(_pieces(actual, expected, reference))
    figures = [_largest_figures(*piece, least=least, rtol=tolerance.rtol) for piece in pieces]
    # Each is NaN where any element's is.
    over, max_abs, max_rel, own_max_abs, own_max_rel = torch.stack(figures).amax(0).tolist()
    if not math.isfinite(own_max_abs):
        return None
    right = total = expected.numel()
    if not over <= 0:
        right = sum(_count_right(ours, exact, least, tolerance.rtol) for ours, exact, _ in pieces)
    return SliceComparison(total, right, max_abs, max_rel, own_max_rel)


def _largest_figures(
    actual: torch.Tensor, expected: torch.Tensor, reference: torch.Tensor, *, least: float, rtol: float
) -> torch.Tensor:
    """By how much an element is over its limit, its error and its relative error, and the reference's own two: the
    largest of each."""
    magnitude = expected.abs()
    error = torch.sub(actual, expected).abs_()
    over = magnitude.mul(rtol).add_(least).sub_(error).amin().neg()
    largest = error.amax()
    magnitude.clamp_(min=least)
    relative = error.div_(magnitude).amax()
    error = torch.sub(reference, expected).abs_()
    return torch.stack([over, largest, relative, error.amax(), error.div_(magnitude).amax()])


def _count_right(actual: torch.Tensor, expected: torch.Tensor, least: float, rtol: float) -> int:
    error = torch.sub(actual, expected).abs_()
    return int((error <= expected.abs().mul_(rtol).add_(least)).sum())


def _pieces(
    actual: torch.Tensor, expected: torch.Tensor, reference: torch.Tensor
) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    """All three, so much at a time that a processor is fast; a GPU is where there is much to do."""
    if expected.is_cuda or expected.numel() <= _PIECE:
        yield actual, expected, reference
        return
    flat = [tensor.reshape(-1) for tensor in (actual, expected, reference)]
    for start in range(0, expected.numel(), _PIECE):
        ours, exact, own = (values[start : start + _PIECE] for values in flat)
        yield ours, exact, own


def _as_comparison(seen: SliceErrors, total: int) -> SliceComparison | None:
    if not math.isfinite(seen.own_max_abs):
        return None
    return SliceComparison(
        total=total,
        right=total - seen.wrong,
        max_abs=seen.max_abs,
        max_rel=seen.max_rel,
        reference_max_rel=seen.own_max_rel,
    )


def departures(
    actual: torch.Tensor, expected: torch.Tensor, reference: torch.Tensor, tolerance: Tolerance
) -> tuple[Departure, float]:
    """That of ``actual``, and the magnitude of the reference's own; arguments as for ``compare_slice``."""
    fused = kernels() if expected.is_cuda and expected.numel() else None
    seen = None if fused is None else fused.departure(actual, expected, reference, _rules(tolerance))
    if seen is not None:
        return (
            Departure(
                seen.wrong / max(1, seen.counted),
                math.inf if math.isnan(seen.excess) else seen.excess,
                _share_of(seen.magnitude, seen.right_magnitude),
            ),
            _share_of(seen.own_magnitude, seen.right_magnitude),
        )
    excess = (actual.double() - expected).abs_().div_(usual_limit(expected, tolerance)[0])
    wrong = excess.numel() - int((excess <= 1.0).sum())
    counted = int(((expected != 0) | (actual != 0)).sum())
    whole = _sum_of_magnitudes(expected)
    return (
        Departure(
            wrong / max(1, counted),
            _maximum(excess.nan_to_num(nan=math.inf)),
            _share_of(_sum_of_magnitudes(actual), whole),
        ),
        _share_of(_sum_of_magnitudes(reference), whole),
    )


def _sum_of_magnitudes(values: torch.Tensor) -> float:
    return float(values.double().abs().sum())


def _share_of(magnitude: float, whole: float) -> float:
    return magnitude / whole if whole else 1.0


def _rules(tolerance: Tolerance) -> tuple[float, float, float]:
    return tolerance.atol, tolerance.rtol, _SMALLEST_SCALE


@dataclass(frozen=True)
class _Limits:
    """What an element of a slice may be off by: ``limit``, times ``widened()`` where that is not enough."""

    limit: torch.Tensor
    own_error: torch.Tensor
    scale: float

    def widened(self) -> float:
        """By so much the limits are too narrow for the reference itself; at least 1."""
        return max(1.0, REFERENCE_MARGIN * _maximum(self.own_error / self.limit))


def _limits(
    expected: torch.Tensor, reference: torch.Tensor, tolerance: Tolerance, sensitivity: torch.Tensor | None
) -> _Limits:
    limit, scale = usual_limit(expected, tolerance)
    if sensitivity is not None:
        limit.add_(sensitivity)
    own_error = torch.sub(reference, expected).abs_()  # in float64, as expected is
    return _Limits(limit, own_error, scale)


def usual_limit(expected: torch.Tensor, tolerance: Tolerance) -> tuple[torch.Tensor, float]:
    """Each element's limit, and the scale, before anything widens it."""
    scale = _scale(expected)
    return expected.abs().mul_(tolerance.rtol).add_(tolerance.atol * scale), scale


def _scale(expected: torch.Tensor) -> float:
    """The root mean square."""
    count = expected.numel()
    norm = float(torch.linalg.vector_norm(expected)) if count else 1.0
    # max() returns its first argument where the other is NaN: what is not finite stays so.
    return max(norm / math.sqrt(max(1, count)), _SMALLEST_SCALE)


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


def _relative(error: torch.Tensor, magnitude: torch.Tensor) -> float:
    return _maximum((error / magnitude).nan_to_num_(nan=math.inf))


def _maximum(values: torch.Tensor) -> float:
    return float(values.max()) if values.numel() else 0.0


def _unravel(flat: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    index = []
    for extent in reversed(shape):
        flat, position = divmod(flat, extent)
        index.append(position)
    return tuple(reversed(index))
