"""Comparing a tensor with the float64 reference, slice by slice.

An element is right if ``|actual - expected| <= limit`` with ``limit = atol * scale + rtol * |expected|``,
where ``scale`` is the root mean square of the expected slice: neither zeros nor a constant can hide below
an absolute tolerance. Three things widen a limit, and all come from the reference alone; none is asked for where
everything is right without it:

- the reference's own error in the problem's precision, where it uses up more than a quarter of the limit (so in timed
  calls the reference is computed in that precision only where something is wrong without it);
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

from evaluator.judge.kernels import SliceDeparture, SliceErrors, kernels
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
    "tolerance_of",
    "usual_limit",
]

REFERENCE_MARGIN = 4.0
_SMALLEST_SCALE = 1e-30
_OF_HALF: Final = 1e-2
_OF_DOUBLE: Final = 1e-8
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
    """What comparing one slice showed. ``suspect``: something is wrong, or the limit had to be widened.
    ``reference_max_rel`` of ``None``: the reference's own error was not looked at."""

    total: int
    right: int
    max_abs: float = 0.0
    max_rel: float = 0.0
    reference_max_rel: float | None = None
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
    reference_max_rel: float | None = 0.0
    """``None`` where the reference's own error was not looked at in all of it."""
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
        if found.reference_max_rel is None or self.reference_max_rel is None:
            self.reference_max_rel = None
        else:
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
    actual: torch.Tensor, expected: torch.Tensor, reference: torch.Tensor | None, tolerance: Tolerance
) -> SliceComparison | None:
    """What ``compare_slice`` says before anything widens a limit, without the worst element; ``None`` of integers,
    where the reference is not finite, and where there is nothing to compare. Without a ``reference`` in the problem's
    precision nothing is known of its error; ``None`` then where ``actual`` is not finite.

    Nearly every comparison comes to an end here, and this goes over the memory half as often.
    """
    if not expected.is_floating_point() or not expected.numel():
        return None
    own = actual if reference is None else reference
    fused = kernels() if expected.is_cuda else None
    seen = None if fused is None else fused.compare(actual, expected, own, _rules(tolerance))
    if seen is None:
        seen = _compare_in_pieces(actual, expected, reference, tolerance)
    if not math.isfinite(seen.own_max_abs):
        return None
    return SliceComparison(
        total=expected.numel(),
        right=expected.numel() - seen.wrong,
        max_abs=seen.max_abs,
        max_rel=seen.max_rel,
        reference_max_rel=None if reference is None else seen.own_max_rel,
    )


def _compare_in_pieces(
    actual: torch.Tensor, expected: torch.Tensor, reference: torch.Tensor | None, tolerance: Tolerance
) -> SliceErrors:
    """In torch's operations what ``Kernels.compare`` does. Without a ``reference``, ``actual`` stands for it."""
    least = tolerance.atol * _scale(expected)
    pieces = list(_pieces(actual, expected, *([] if reference is None else [reference])))
    if math.isfinite(least) and all(_is_exact(*piece) for piece in pieces):
        return SliceErrors(wrong=0, own_max_abs=0.0, max_abs=0.0, max_rel=0.0, own_max_rel=0.0)
    figures = [_largest_figures(*piece, least=least, rtol=tolerance.rtol) for piece in pieces]
    # Each is NaN where any element's is.
    over, max_abs, max_rel, own_max_abs, own_max_rel = torch.stack(figures).amax(0).tolist()
    wrong = 0
    if not over <= 0:
        wrong = expected.numel() - sum(_count_right(piece[0], piece[1], least, tolerance.rtol) for piece in pieces)
    return SliceErrors(wrong, own_max_abs, max_abs, max_rel, own_max_rel)


def _is_exact(actual: torch.Tensor, expected: torch.Tensor, reference: torch.Tensor | None = None) -> bool:
    """Whether nothing is off at all, as of models that choose and copy: seen in a third of the time that figures
    take, and mostly seen not to be so in the first piece."""
    return all(torch.equal(one.double(), expected) for one in (actual, reference) if one is not None)


def _largest_figures(
    actual: torch.Tensor, expected: torch.Tensor, reference: torch.Tensor | None = None, *, least: float, rtol: float
) -> torch.Tensor:
    """By how much an element is over its limit, its error and its relative error, and the reference's own two: the
    largest of each. Without a ``reference``, ``actual`` stands for it."""
    magnitude = expected.abs()
    error = torch.sub(actual, expected).abs_()
    over = magnitude.mul(rtol).add_(least).sub_(error).amin().neg()
    largest = error.amax()
    magnitude.clamp_(min=least)
    relative = error.div_(magnitude).amax()
    if reference is None:
        return torch.stack([over, largest, relative, largest, relative])
    error = torch.sub(reference, expected).abs_()
    return torch.stack([over, largest, relative, error.amax(), error.div_(magnitude).amax()])


def _count_right(actual: torch.Tensor, expected: torch.Tensor, least: float, rtol: float) -> int:
    error = torch.sub(actual, expected).abs_()
    return int((error <= expected.abs().mul_(rtol).add_(least)).sum())


def _pieces(*tensors: torch.Tensor) -> Iterator[list[torch.Tensor]]:
    """Of all of these, so much at a time that a processor is fast; a GPU is where there is much to do."""
    if tensors[0].is_cuda or tensors[0].numel() <= _PIECE:
        yield list(tensors)
        return
    flat = [tensor.reshape(-1) for tensor in tensors]
    for start in range(0, len(flat[0]), _PIECE):
        yield [values[start : start + _PIECE] for values in flat]


def tolerance_of(
    dtype: torch.dtype | None, given: torch.dtype | None, precision: torch.dtype, usual: Tolerance
) -> Tolerance:
    """That of a tensor of ``dtype`` in a problem in this ``precision``, which has the ``usual`` one. ``given``: the
    coarsest dtype of inputs and weights."""
    if dtype is given is torch.float64:
        return Tolerance(min(usual.atol, _OF_DOUBLE), min(usual.rtol, _OF_DOUBLE))
    if dtype in (torch.float16, torch.bfloat16) and precision is torch.float32:
        return Tolerance(max(usual.atol, _OF_HALF), max(usual.rtol, _OF_HALF))
    if dtype is not None and dtype.itemsize == 1:
        step = torch.finfo(dtype).eps  # what is rounded to so few bits is right on either side
        return Tolerance(max(usual.atol, _OF_HALF), max(usual.rtol, step))
    return usual


def departures(
    actual: torch.Tensor, expected: torch.Tensor, reference: torch.Tensor | None, tolerance: Tolerance
) -> tuple[Departure, Departure]:
    """That of ``actual``, and the reference's own; arguments as for ``compare_slice``. Without a ``reference``, both
    are that of ``actual``."""
    own = actual if reference is None else reference
    fused = kernels() if expected.is_cuda and expected.numel() else None
    seen = None if fused is None else fused.departure(actual, expected, own, _rules(tolerance))
    if seen is not None:
        ours, theirs = (_as_departure(one, seen.right_magnitude) for one in (seen.actual, seen.own))
        return ours, theirs
    limit, _ = usual_limit(expected, tolerance)
    departure = _depart(actual, expected, limit)
    return departure, departure if reference is None else _depart(reference, expected, limit)


def _as_departure(seen: SliceDeparture, whole: float) -> Departure:
    excess = math.inf if math.isnan(seen.excess) else seen.excess
    return Departure(seen.wrong / max(1, seen.counted), excess, _share_of(seen.magnitude, whole))


def _depart(values: torch.Tensor, expected: torch.Tensor, limit: torch.Tensor) -> Departure:
    excess = (values.double() - expected).abs_().div_(limit)
    wrong = excess.numel() - int((excess <= 1.0).sum())
    counted = int(((expected != 0) | (values != 0)).sum())
    return Departure(
        wrong / max(1, counted),
        _maximum(excess.nan_to_num(nan=math.inf)),
        _share_of(_sum_of_magnitudes(values), _sum_of_magnitudes(expected)),
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
        return SliceComparison(count, count, reference_max_rel=0.0)
    at = int((~right).to(torch.uint8).argmax())
    got, wanted = float(actual.reshape(-1)[at]), float(expected.reshape(-1)[at])
    return SliceComparison(
        right.numel(),
        count,
        max_abs=abs(got - wanted),
        reference_max_rel=0.0,
        worst=Worst(at, got, wanted, abs(got - wanted), 0.0, math.inf),
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
