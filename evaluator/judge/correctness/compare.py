"""Comparison of a tensor with the float64 reference, slice by slice.

An element is right if ``|actual - expected| <= limit`` (see ``evaluator.judge.correctness.limits``). Where the
reference is not finite, it is right in the same class (see ``evaluator.judge.correctness.nonfinite``). Limits are
widened by facts about the reference alone, and only where something is wrong without them.

Right elements are counted, not wrong ones, and every comparison is written so that NaN fails.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import torch

from evaluator.judge.correctness.evidence.mismatch import Evidence, Worst
from evaluator.judge.correctness.fused_kernels import SliceErrors, kernels
from evaluator.judge.correctness.limits import (
    ElementLimits,
    excused_outliers,
    fused_rules,
    least_limit,
    smallest_step,
    usual_limits,
    widen,
    widened_few,
    with_terms,
)
from evaluator.judge.correctness.nonfinite import MaskedTensors, mask_nonfinite
from evaluator.problems.problem import Tolerance

__all__ = ["SliceComparison", "Tally", "Worst", "compare_slice", "compare_unwidened"]

_PIECE: Final = 2**15
"""Pieces of this size keep intermediate results in a processor's own cache, and are computed by one thread: others
would have to be woken for each step. Pieces of a million elements took three times as long."""
_MOST: Final = 0.5
"""Where more than this share of a slice is outside of the usual limits, and slices before were wrong, widened limits
would change the count alone."""
_FEW_WIDENED: Final = 1 / 64
"""Up to this share of the elements, limits are widened for these alone. Beyond it, the record has the share of capped
limits."""


@dataclass(frozen=True)
class SliceComparison:
    """The result of comparing one slice. ``undetermined``: elements without a standard, neither right nor wrong.
    ``conclusive``: conclusive elements, ``None`` for all; NaN where NaN is right is not conclusive. ``suspect``:
    something is wrong, or limits had to be widened. ``capped``: the share of the elements whose widening was capped.
    ``reference_max_rel`` of ``None``: the error of the native-precision reference was not computed."""

    total: int
    right: int
    max_abs: float = 0.0
    max_rel: float = 0.0
    reference_max_rel: float | None = None
    widened: float = 1.0
    capped: float = 0.0
    worst: Worst | None = None
    undetermined: int = 0
    conclusive: int | None = None

    @property
    def wrong(self) -> int:
        """The number of wrong elements."""
        return self.total - self.right - self.undetermined

    @property
    def suspect(self) -> bool:
        return self.wrong > 0 or self.widened > 1.0


@dataclass
class Tally:
    """The findings about one tensor over all its slices, or in some of its ``rows`` (then ``shape`` is theirs)."""

    name: str
    shape: tuple[int, ...]
    rows: Sequence[int] | None = None
    total: int = 0
    right: int = 0
    max_abs: float = 0.0
    max_rel: float = 0.0
    reference_max_rel: float | None = 0.0
    """``None`` where the error of the native-precision reference was not computed for all of it."""
    widened: float = 1.0
    capped: float = 0.0
    worst: Worst | None = None
    undetermined: int = 0
    """Elements without a standard: the reference is finite in only one of float64 and the problem's precision, or it
    overflows on the way to them."""
    conclusive: int = 0
    """Conclusive elements: all but undetermined ones and NaN where NaN is right."""
    evidence: Evidence | None = None
    """The evidence about the wrong elements, where there are any."""
    blind: bool = False
    """There was no memory for a closer examination."""

    @property
    def passed(self) -> bool:
        return self.right + self.undetermined == self.total == math.prod(self.shape)

    @property
    def wrong(self) -> int:
        """The number of wrong elements."""
        return self.total - self.right - self.undetermined

    @property
    def conclusive_share(self) -> float:
        """The conclusive share of its elements; 1 where there are no elements."""
        return self.conclusive / self.total if self.total else 1.0

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
        self.capped = max(self.capped, found.capped)
        self.undetermined += found.undetermined
        self.conclusive += found.total if found.conclusive is None else found.conclusive

    def examine(
        self,
        actual: torch.Tensor,
        expected: torch.Tensor,
        reference: torch.Tensor,
        tolerance: Tolerance,
        sensitivity: torch.Tensor | None = None,
        terms: torch.Tensor | None = None,
    ) -> None:
        """Examine the slice that was added last, which is wrong; the arguments are those of ``compare_slice``."""
        if self.blind or self.rows is not None:
            return
        try:
            limit = None
            if expected.is_floating_point():
                settled = mask_nonfinite(actual, expected, reference)
                weighed = _weigh(settled, tolerance, sensitivity, terms)
                # An excused outlier may be as wrong as it is, so that both count the same elements.
                limit = torch.where(weighed.right, torch.maximum(weighed.limit, weighed.error), weighed.limit)
                limit.masked_fill_(weighed.right & settled.actual.isinf(), math.inf)
                actual, expected = settled.shown(actual)
                del weighed, settled
            self._examine(actual, expected, limit)
        except torch.OutOfMemoryError:
            # The verdict stands without it, and must not become another one.
            self.evidence, self.blind = None, True

    def add_clearly_wrong(self, actual: torch.Tensor, expected: torch.Tensor, tolerance: Tolerance) -> bool:
        """Take in and examine the next slice of a wrong tensor, where most of it is outside of the usual limits.
        Otherwise return ``False``: widened limits, which read the memory forty times, may count fewer as wrong."""
        if not self.wrong or self.blind or self.rows is not None or not expected.is_floating_point():
            return False
        usual = compare_unwidened(actual, expected, None, tolerance)
        if usual is None or usual.wrong <= _MOST * usual.total:
            return False
        # The error of the reference is known from the slices before.
        self.add(replace(usual, reference_max_rel=0.0))
        try:
            self._examine(actual, expected, usual_limits(expected, tolerance, actual.dtype).limit)
        except torch.OutOfMemoryError:
            self.evidence, self.blind = None, True
        worst = None if self.evidence is None else self.evidence.worst
        if worst is not None and (self.worst is None or worst.excess > self.worst.excess):
            self.worst = worst
        return True

    def _examine(self, actual: torch.Tensor, expected: torch.Tensor, limit: torch.Tensor | None) -> None:
        self.evidence = self.evidence or Evidence(self.shape, actual.dtype)
        self.evidence.add(actual, expected, limit, self.total - actual.numel())

    def describe(self) -> str:
        """Describe the place and the size of the worst error, in one sentence."""
        if self.worst is None:
            return f"{self.name}: {self.wrong} of {self.total} elements are wrong"
        worst, share = self.worst, 100 * self.wrong / self.total
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
    terms: torch.Tensor | None = None,
) -> SliceComparison:
    """Compare one slice.

    ``actual`` and ``reference`` (the reference in the problem's precision) have the problem's dtype. ``expected``,
    ``sensitivity`` and ``terms`` are float64; all have the same shape. ``sensitivity``: the distance that each element
    moves with its inputs. ``terms``: the magnitude of the terms that each is a sum of.
    """
    if not expected.is_floating_point():
        return _compare_exactly(actual, expected)
    if sensitivity is None and terms is None:
        usual = _compare_unwidened(actual, expected, reference, tolerance)
        if usual is not None:
            found, seen = usual
            if found.right == found.total:
                return found
            few = seen.places
            if few is not None and len(few) <= _FEW_WIDENED * found.total:
                factor = widened_few(few, actual, expected, reference, seen.least, tolerance)
                if factor is not None:
                    return replace(found, right=found.total, widened=factor)
    settled = mask_nonfinite(actual, expected, reference)
    weighed = _weigh(settled, tolerance, sensitivity, terms)
    error, native_error, limit, right = weighed.error, weighed.native_error, weighed.limit, weighed.right
    error.masked_fill_(~right & settled.actual.isinf(), math.inf)
    if settled.mismatched is not None:
        right &= ~settled.mismatched
        error.masked_fill_(settled.mismatched, math.inf)
    count = int(right.sum())
    worst = None
    if count < right.numel():
        excess = (error / limit).nan_to_num(nan=math.inf).masked_fill_(right, -1.0).reshape(-1)
        at = int(excess.argmax())
        worst = Worst(at, *(float(tensor.reshape(-1)[at]) for tensor in (actual, expected, error, limit, excess)))
    magnitude = settled.expected.abs().clamp_(min=tolerance.atol * weighed.scale + smallest_step(actual.dtype))
    return SliceComparison(
        total=right.numel(),
        right=count - settled.undetermined,
        max_abs=_maximum(error.nan_to_num(nan=math.inf)),
        max_rel=_relative(error, magnitude),
        reference_max_rel=_relative(native_error, magnitude),
        widened=weighed.factor,
        capped=weighed.capped,
        worst=worst,
        undetermined=settled.undetermined,
        conclusive=settled.conclusive,
    )


def compare_unwidened(
    actual: torch.Tensor, expected: torch.Tensor, reference: torch.Tensor | None, tolerance: Tolerance
) -> SliceComparison | None:
    """Return the result of ``compare_slice`` before limits are widened, without the worst element.

    ``None`` for integers, for a reference that is not finite, and for empty tensors. Without a ``reference`` in the
    problem's precision its error is unknown; then ``None`` as well where ``actual`` is not finite. Nearly every
    comparison ends here, and this reads the memory half as often.
    """
    usual = _compare_unwidened(actual, expected, reference, tolerance)
    return None if usual is None else usual[0]


def _compare_unwidened(
    actual: torch.Tensor, expected: torch.Tensor, reference: torch.Tensor | None, tolerance: Tolerance
) -> tuple[SliceComparison, SliceErrors] | None:
    """Return the result of ``compare_unwidened``, and the errors behind it."""
    if not expected.is_floating_point() or not expected.numel():
        return None
    own = actual if reference is None else reference
    fused = kernels() if expected.is_cuda else None
    seen = None if fused is None else fused.compare(actual, expected, own, fused_rules(tolerance, actual.dtype))
    if seen is None:
        seen = _compare_in_pieces(actual, expected, reference, tolerance)
    if not math.isfinite(seen.native_max_abs):
        return None
    found = SliceComparison(
        total=expected.numel(),
        right=expected.numel() - seen.wrong,
        max_abs=seen.max_abs,
        max_rel=seen.max_rel,
        reference_max_rel=None if reference is None else seen.native_max_rel,
    )
    return found, seen


def _compare_in_pieces(
    actual: torch.Tensor, expected: torch.Tensor, reference: torch.Tensor | None, tolerance: Tolerance
) -> SliceErrors:
    """Do in torch's operations the work of ``Kernels.compare``. Without a ``reference``, ``actual`` stands for it."""
    least = least_limit(expected, tolerance, actual.dtype)
    pieces = list(_pieces(actual, expected, *([] if reference is None else [reference])))
    if math.isfinite(least) and all(_is_exact(*piece) for piece in pieces):
        return SliceErrors(0, least, native_max_abs=0.0, max_abs=0.0, max_rel=0.0, native_max_rel=0.0, places=None)
    figures = [_largest_figures(*piece, least=least, rtol=tolerance.rtol) for piece in pieces]
    # Each is NaN where any element's is.
    over, max_abs, max_rel, native_max_abs, native_max_rel = torch.stack(figures).amax(0).tolist()
    wrong, places = 0, None
    if not over <= 0:
        outside = torch.cat([_outside(piece[0], piece[1], least, tolerance.rtol) for piece in pieces])
        wrong = int(outside.sum())
        places = outside.nonzero().view(-1) if wrong <= _FEW_WIDENED * expected.numel() else None
    return SliceErrors(wrong, least, native_max_abs, max_abs, max_rel, native_max_rel, places)


def _is_exact(actual: torch.Tensor, expected: torch.Tensor, reference: torch.Tensor | None = None) -> bool:
    """Whether everything is exact, as with models that choose and copy. This takes a third of the time of the figures,
    and is mostly refuted in the first piece."""
    return all(torch.equal(one.double(), expected) for one in (actual, reference) if one is not None)


def _largest_figures(
    actual: torch.Tensor, expected: torch.Tensor, reference: torch.Tensor | None = None, *, least: float, rtol: float
) -> torch.Tensor:
    """Return the largest excess over a limit, the largest error and relative error, and the reference's own two.
    Without a ``reference``, ``actual`` stands for it."""
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


def _outside(actual: torch.Tensor, expected: torch.Tensor, least: float, rtol: float) -> torch.Tensor:
    """Return the mask of elements outside of their usual limits, bool, in one dimension."""
    error = torch.sub(actual, expected).abs_()
    return ~(error <= expected.abs().mul_(rtol).add_(least)).reshape(-1)


def _pieces(*tensors: torch.Tensor) -> Iterator[list[torch.Tensor]]:
    """Yield parts of all tensors in a size at which a processor is fast; a GPU gets everything at once."""
    if tensors[0].is_cuda or tensors[0].numel() <= _PIECE:
        yield list(tensors)
        return
    flat = [tensor.reshape(-1) for tensor in tensors]
    for start in range(0, len(flat[0]), _PIECE):
        yield [values[start : start + _PIECE] for values in flat]


@dataclass(frozen=True)
class _Weighed:
    """The mask of ``right`` elements and its reasons, by element: the candidate's ``error``, the native-precision
    reference's, and the ``limit``. ``scale`` is that of the usual limits; ``factor`` and ``capped`` are as in
    ``Widened``."""

    error: torch.Tensor
    native_error: torch.Tensor
    limit: torch.Tensor
    right: torch.Tensor
    scale: float
    factor: float = 1.0
    capped: float = 0.0


def _weigh(
    settled: MaskedTensors, tolerance: Tolerance, sensitivity: torch.Tensor | None, terms: torch.Tensor | None
) -> _Weighed:
    """Compare each element with its limit, which is widened where the usual one is not enough."""
    limits = _limits(settled, tolerance, sensitivity, terms)
    native_error = _native_error(settled)
    error = (_in_numbers(settled.actual) - settled.expected).abs_()
    right = _are_within(error, limits.limit)
    if bool(right.all()):
        return _Weighed(error, native_error, limits.limit, right, limits.scale)
    widened = widen(limits, settled.expected, native_error, tolerance)
    right = _are_within(error, widened.limit)
    right |= excused_outliers(error, right, settled.expected, native_error, limits, tolerance)
    return _Weighed(error, native_error, widened.limit, right, limits.scale, widened.factor, widened.capped)


def _in_numbers(actual: torch.Tensor) -> torch.Tensor:
    """Return float64 numbers, with the smallest number that rounds to infinity in place of infinity. Where the limit
    reaches as far, a right answer may have overflowed."""
    info = torch.finfo(actual.dtype)
    overflowing = min(info.max * (1.0 + info.eps / 4), torch.finfo(torch.float64).max)
    # double() of float64 is the candidate's tensor itself.
    return actual.double().nan_to_num(nan=math.nan, posinf=overflowing, neginf=-overflowing)


def _limits(
    settled: MaskedTensors, tolerance: Tolerance, sensitivity: torch.Tensor | None, terms: torch.Tensor | None
) -> ElementLimits:
    limits = usual_limits(settled.expected, tolerance, settled.actual.dtype)
    if terms is not None:
        limits = with_terms(limits, settled.expected, terms, tolerance, torch.finfo(settled.actual.dtype).eps)
    if sensitivity is not None:
        limits.limit.add_(sensitivity.nan_to_num(nan=0.0, posinf=math.inf))
    return limits


def _are_within(error: torch.Tensor, limit: torch.Tensor) -> torch.Tensor:
    return error <= limit


def _native_error(settled: MaskedTensors) -> torch.Tensor:
    return torch.sub(settled.reference, settled.expected).abs_()  # in float64, as expected is


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
