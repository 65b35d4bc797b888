"""Limits of the difference of an element from the float64 reference. All are pure functions of the reference alone.

The usual limit of an element is ``rtol * |expected| + atol * scale``. The scale is the root mean square of the expected
tensor or, where that is less, a magnitude that most of its elements have. So a few large elements hide nothing in the
others. Where that is too narrow, three facts about single elements each widen the limits of these alone:

- the error of the native-precision reference: of the element itself, and the typical one for elements of about its
  magnitude (``widen``);
- the magnitude of the terms that the element is a sum of (``with_terms``): rounding is relative to these;
- the distance that the element moves where inputs are rounded otherwise, or pass a kink
  (``evaluator.judge.correctness.sensitivity``).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

import torch

from evaluator.judge.correctness.tolerances import SettledTolerance
from evaluator.problems.problem import Tolerance

__all__ = [
    "FAR_ABOVE",
    "GOLDEN",
    "NATIVE_FACTOR",
    "NOTHING",
    "QUANTILES",
    "ROUNDING_FACTOR",
    "SAMPLE",
    "ElementLimits",
    "Widened",
    "excused_outliers",
    "fused_rules",
    "is_rounding",
    "least_limit",
    "rounding_of_terms",
    "smallest_step",
    "typical_magnitude",
    "typical_native_error",
    "usual_limits",
    "widen",
    "widened_few",
    "with_terms",
]

NATIVE_FACTOR: Final = 4.0
"""An element may be this many times as far off as the native-precision reference."""
_SMALLEST_SCALE: Final = 1e-30
SAMPLE: Final = 2048
"""The number of elements that a typical magnitude is estimated from."""
GOLDEN: Final = (math.sqrt(5.0) - 1.0) / 2.0
"""Multiples of it, modulo 1, are spread evenly for any count."""
QUANTILES: Final = ((0.5, 1.5), (0.25, 3.0), (0.05, 16.0), (0.01, 120.0))
"""Each quantile of the magnitudes, times its factor, is about the standard deviation of normally distributed numbers.
Filled or planted elements can reach one quantile alone: nine scores of ten may be -1e9."""
FAR_ABOVE: Final = 2.0**12
"""A magnitude that several elements have and that is this many times the next one is a fill."""
NOTHING: Final = 2.0**-40
"""Magnitudes below this share of the largest count as zero for the typical magnitude."""
_SAMPLE_OF_ERRORS: Final = 2**18
_ROUNDINGS_OF_TERMS: Final = 4.0
_TERMS_FACTOR: Final = 8.0
"""A magnitude of terms that was seen in three random moves may be too small by this factor."""
_TYPICAL_FACTOR: Final = 12.0
"""For normally distributed errors, the mean of ``typical_native_error`` is 0.68 standard deviations."""
ROUNDING_FACTOR: Final = 32.0
"""Where a tensor is nothing but rounding, another computation may be this many times as far off as the typical
native-precision error."""
_CAP: Final = 16.0
"""The typical native-precision error widens a limit to at most this many times the one with the root mean square as its
scale. With more, half of the right answer would be right."""
_FEW: Final = 0.02
_FEW_OF_ALL: Final = 1e-3
_LEAST_OF_ALL: Final = 8
"""At this many elements, a share or a number, the scale is the root mean square of the tensor, whatever that of their
rows."""
_OUTLIERS: Final = 0.05
_MAX_OUTLIERS: Final = 0.005
"""The most elements outside of widened limits: a share of those where the native-precision reference is outside of the
usual ones, and a share of all."""
_SCATTERED: Final = 0.5
"""Losses by chance are no more than this share of a column."""
_LEAST_OF_GROUP: Final = 64
_LEAST_OF_ROW: Final = 16
_LOWEST_EXPONENT: Final = -300
_EXPONENTS: Final = 600


@dataclass(frozen=True)
class ElementLimits:
    """The usual limits of a tensor: ``limit`` by element (float64), its scale and its root mean square."""

    limit: torch.Tensor
    scale: float
    root_mean_square: float


@dataclass(frozen=True)
class Widened:
    """Limits that are widened by the error of the native-precision reference. ``factor``: the harmonic mean of widened
    over usual limit, which a few elements do not decide. ``capped``: the share of the elements whose typical error is
    above the cap."""

    limit: torch.Tensor
    factor: float
    capped: float


def usual_limits(expected: torch.Tensor, tolerance: Tolerance, dtype: torch.dtype) -> ElementLimits:
    """Return the usual limits of a finite float64 tensor that is delivered as ``dtype``."""
    scale, mean = scale_of(expected)
    limit = expected.abs().mul_(tolerance.rtol).add_(tolerance.atol * scale + smallest_step(dtype))
    return ElementLimits(limit, scale, mean)


def scale_of(expected: torch.Tensor) -> tuple[float, float]:
    """Return the scale of a float64 tensor's usual limits, and its root mean square without filled elements. Both are
    at least 1e-30, and not finite where an element is not."""
    mean = root_mean_square(expected)
    if not math.isfinite(mean):
        return mean, mean
    sample = _sample_of(expected)
    fill = _fill_of(sample)
    scale = max(min(mean, float(_typical_of(sample, fill))), _SMALLEST_SCALE)
    return scale, root_mean_square(expected[expected.abs() != fill]) if float(fill) else mean


def root_mean_square(expected: torch.Tensor) -> float:
    """Return the root mean square of a float64 tensor; at least 1e-30. NaN stays NaN."""
    count = expected.numel()
    norm = float(torch.linalg.vector_norm(expected)) if count else 1.0
    # max() returns its first argument where the other is NaN, so that non-finite values stay.
    return max(norm / math.sqrt(max(1, count)), _SMALLEST_SCALE)


def typical_magnitude(expected: torch.Tensor) -> torch.Tensor:
    """Return a magnitude that most elements of a float64 tensor have, as a tensor of no dimension on its device;
    infinite where all are zero.

    It is estimated from quantiles of a sample that is spread evenly. Zeros are left out, since masks and rectifiers
    make many. Remainders of cancelled terms in float64 are left out as well, and so are fills of scores that do not
    count.
    """
    sample = _sample_of(expected)
    return _typical_of(sample, _fill_of(sample))


def _typical_of(sample: torch.Tensor, fill: torch.Tensor) -> torch.Tensor:
    """Return the typical magnitude of a ``sample`` of magnitudes, without those that are ``fill``."""
    if not sample.numel():
        return torch.full((), math.inf, dtype=torch.float64, device=sample.device)
    finite = (sample < math.inf) & (sample != fill)
    told = finite & (sample > NOTHING * torch.where(finite, sample, 0.0).amax())
    ordered = torch.where(told, sample, math.inf).sort().values
    # No number is brought to the processor, because that would wait for the device.
    quantiles = torch.tensor([quantile for quantile, _ in QUANTILES], dtype=torch.float64, device=sample.device)
    factors = torch.tensor([factor for _, factor in QUANTILES], dtype=torch.float64, device=sample.device)
    places = (quantiles * told.sum()).long().clamp_(max=ordered.numel() - 1)
    return (ordered[places] * factors).amin()


def _sample_of(expected: torch.Tensor) -> torch.Tensor:
    """Return magnitudes of elements that are spread evenly, in one dimension."""
    flat = expected.reshape(-1)
    return (flat[_spread(flat, SAMPLE)] if flat.numel() > SAMPLE else flat).abs()


def _spread(flat: torch.Tensor, places: int) -> torch.Tensor:
    """Return this many ``places`` in a tensor of one dimension, spread evenly and without a period."""
    at = torch.arange(places, device=flat.device, dtype=torch.float64).add_(0.5).mul_(GOLDEN).frac_()
    return at.mul_(flat.numel()).long()


def _fill_of(sample: torch.Tensor) -> torch.Tensor:
    """Return the fill of numbers that do not count, as masked scores have -1e9. It is the largest magnitude of
    ``sample`` where several elements have it, far above the rest. Zero without a fill; a tensor of no dimension."""
    finite = torch.where(sample < math.inf, sample, 0.0)
    if not sample.numel():
        return finite.sum()
    largest = finite.amax()
    others = torch.where(finite < largest, finite, 0.0).amax()
    is_fill = ((finite == largest).sum() > 1) & (largest > FAR_ABOVE * others) & (others > 0)
    return torch.where(is_fill, largest, 0.0)


def least_limit(expected: torch.Tensor, tolerance: Tolerance, dtype: torch.dtype) -> float:
    """Return the usual limit of an exact zero; other elements add ``rtol`` of their magnitude to it."""
    return tolerance.atol * scale_of(expected)[0] + smallest_step(dtype)


def fused_rules(tolerance: Tolerance, dtype: torch.dtype) -> tuple[float, float, float, float]:
    """Return a kernel's parameters for the usual limits of a tensor delivered as ``dtype``: absolute and relative
    tolerance, the smallest scale and step."""
    return tolerance.atol, tolerance.rtol, _SMALLEST_SCALE, smallest_step(dtype)


def smallest_step(dtype: torch.dtype) -> float:
    """Return the loss of a number at the lower end of ``dtype``: devices flush subnormal numbers to zero, except in
    float16."""
    info = torch.finfo(dtype)
    return info.smallest_normal * info.eps if dtype is torch.float16 else info.smallest_normal


def with_terms(
    limits: ElementLimits, expected: torch.Tensor, terms: torch.Tensor, tolerance: Tolerance, epsilon: float
) -> ElementLimits:
    """Return limits with each element's own scale, where that is more.

    The scale is the magnitude of the ``terms`` that the element is a sum of (float64, of the shape of ``expected`` or
    one for all). It is at most the root mean square of its row, or that of most rows: a loud row, as planted ones are,
    says nothing about the others.

    A few roundings of the terms themselves (``epsilon``: the distance from one to the next number in the tensor's
    dtype) are allowed beyond that, at most a tenth of the tolerance. The remainder of cancelled terms is not known
    better, as in the gradient of a softmax at its one large element.
    """
    magnitude = terms * _TERMS_FACTOR
    rounded = rounding_of_terms(terms, tolerance, epsilon)
    most = _root_mean_square_around(expected).clamp_(max=limits.root_mean_square)
    scale = torch.minimum(magnitude.nan_to_num_(nan=math.inf), most).clamp_(min=limits.scale)
    added = scale.sub_(limits.scale).mul_(tolerance.atol)
    return ElementLimits(limits.limit + torch.maximum(added, rounded), limits.scale, limits.root_mean_square)


def rounding_of_terms(terms: torch.Tensor, tolerance: Tolerance, epsilon: float) -> torch.Tensor:
    """Return the size of a few roundings of the ``terms`` (see ``with_terms``): float64, of their shape, zero where the
    terms are unknown."""
    known = (terms * _TERMS_FACTOR).nan_to_num_(nan=0.0, posinf=0.0)
    return known.mul_(min(_ROUNDINGS_OF_TERMS * epsilon, tolerance.atol / 10))


def _root_mean_square_around(expected: torch.Tensor) -> torch.Tensor:
    """Return the root mean square of each row of a float64 tensor, shaped for comparing. It is at least the median of
    all rows that are not zero. Rows are along the first dimension with several indices. Infinite where a row is one
    element."""
    first = next((dimension for dimension, extent in enumerate(expected.shape) if extent > 1), None)
    if first is None or expected.numel() <= expected.shape[first]:
        return expected.new_full((), math.inf)
    rows = torch.linalg.vector_norm(expected.reshape(expected.shape[first], -1), dim=1)
    rows /= math.sqrt(expected.numel() / len(rows))
    usual = torch.where(rows > 0, rows, torch.nan).nanmedian().nan_to_num_(nan=0.0)
    return torch.maximum(rows, usual).view(-1, *[1] * (expected.dim() - first - 1))


def typical_native_error(expected: torch.Tensor, native_error: torch.Tensor) -> torch.Tensor:
    """Return for each element the typical native-precision error of elements of about the same magnitude.

    Both arguments are float64, of one shape and finite. Elements are grouped by the exponent of ``expected``; small
    groups are joined with their neighbours. The typical error is the square of the mean root, which a few large errors
    hardly move. Elements without any error are not counted. In a row where the reference is more inexact than in
    others, for each magnitude, the typical error is larger: a softmax of large scores beside one of small ones.
    """
    typical = _typical_by_magnitude(expected.reshape(-1), native_error.reshape(-1)).view(expected.shape)
    return typical.mul_(_times_as_inexact(native_error, typical))


def _typical_by_magnitude(
    expected: torch.Tensor, native_error: torch.Tensor, wanted: torch.Tensor | None = None
) -> torch.Tensor:
    """Return ``typical_native_error`` without regard to rows, in one dimension. ``wanted``: the expected values to
    return it for, where these are others."""
    known = _groups_of(expected)
    zero = expected == 0
    lowest = known.masked_fill(zero, _EXPONENTS - 1).amin() if expected.numel() else known.new_zeros(())
    known = torch.where(zero, lowest, known)
    groups = known if wanted is None else torch.where(wanted == 0, lowest, _groups_of(wanted))
    roots = native_error.sqrt()
    counts = torch.bincount(known, weights=(roots > 0).double(), minlength=_EXPONENTS).tolist()
    sums = torch.bincount(known, weights=roots, minlength=_EXPONENTS).tolist()
    asked = torch.bincount(groups, minlength=_EXPONENTS).tolist()
    table = torch.tensor(_means_around(asked, counts, sums), dtype=torch.float64, device=expected.device).square_()
    return table[groups]


def _groups_of(expected: torch.Tensor) -> torch.Tensor:
    return torch.frexp(expected).exponent.long().sub_(_LOWEST_EXPONENT).clamp_(0, _EXPONENTS - 1)


def _times_as_inexact(native_error: torch.Tensor, typical: torch.Tensor) -> torch.Tensor:
    """Return the factor by which the errors of each row exceed the typical ones, at least 1; shaped for multiplying. A
    row is of the last dimension, or of as many of the last ones as make it long enough."""
    dimensions = native_error.dim()
    while dimensions > 0 and native_error[(0,) * dimensions].numel() < _LEAST_OF_ROW:
        dimensions -= 1
    if not dimensions or not native_error.numel():
        return native_error.new_ones(())
    within = tuple(range(dimensions, native_error.dim()))
    roots = (native_error / typical.clamp(min=_SMALLEST_SCALE)).sqrt_()
    counted = (roots > 0).sum(within, keepdim=True)
    times = roots.sum(within, keepdim=True).div_(counted.clamp(min=1)).square_().clamp_(min=1.0)
    return times.masked_fill_(counted < _LEAST_OF_ROW / 2, 1.0)


def _means_around(asked: list[int], counts: list[float], sums: list[float]) -> list[float]:
    """Return for each requested group the mean over it and enough neighbours on either side. ``counts``: the number of
    counted elements by group, ``sums``: the sums of their errors."""
    total = sum(counts)
    until_counts, until_sums = [0.0, *accumulate(counts)], [0.0, *accumulate(sums)]
    means: list[float] = []
    for place, wanted in enumerate(asked):
        if not wanted:
            means.append(0.0)
            continue
        begin, end = place, place + 1
        while until_counts[end] - until_counts[begin] < min(_LEAST_OF_GROUP, total):
            begin, end = max(0, begin - 1), min(len(counts), end + 1)
        counted = until_counts[end] - until_counts[begin]
        means.append((until_sums[end] - until_sums[begin]) / counted if counted else 0.0)
    return means


def widen(limits: ElementLimits, expected: torch.Tensor, native_error: torch.Tensor, tolerance: Tolerance) -> Widened:
    """Widen limits by the error of the native-precision reference, element by element; by its typical error only up to
    the cap.

    A tensor may consist of this error alone. Then no magnitude of an element limits its error.
    """
    typical = typical_native_error(expected, native_error).mul_(_TYPICAL_FACTOR)
    cap = expected.abs().mul_(tolerance.rtol).add_(tolerance.atol * limits.root_mean_square).mul_(_CAP)
    capped = float((typical > cap).double().mean()) if expected.numel() else 0.0
    rounding = _rounding_of(expected, native_error)
    if rounding < limits.root_mean_square:
        typical = torch.minimum(typical, cap, out=typical)
    else:
        typical = typical.clamp_(min=ROUNDING_FACTOR * rounding)
    limit = _joined(torch.maximum(typical, native_error * NATIVE_FACTOR, out=typical), limits.limit, tolerance)
    share = float((limits.limit / limit).mean()) if expected.numel() else 1.0
    return Widened(limit, 1.0 / share if share > 0 else math.inf, capped)


def _joined(native: torch.Tensor, usual: torch.Tensor, tolerance: Tolerance) -> torch.Tensor:
    """Return the limit from the allowance for native-precision error, which is overwritten, and the usual limit."""
    return torch.maximum(native, usual, out=native) if isinstance(tolerance, SettledTolerance) else native.add_(usual)


def widened_few(
    places: torch.Tensor,
    actual: torch.Tensor,
    expected: torch.Tensor,
    reference: torch.Tensor,
    least: float,
    tolerance: Tolerance,
) -> float | None:
    """Return the ``factor`` of ``Widened`` where a few outlying elements are within their widened limits; ``None`` is
    inconclusive.

    ``places``: the elements outside of their usual limits (int64, one dimension, counted row by row). ``least``: the
    usual limit of a zero. The other tensors are as in ``compare_slice``, and finite.

    ``widen`` reads the memory forty times, and mostly for a handful of elements. Here only these are widened, and the
    factor is computed as if the others were not. The typical error comes from a sample. Except for that, no limit is
    more than that of ``widen``: rows with larger typical errors are ignored, the cap is of the usual scale, and nothing
    is taken for mere rounding.
    """
    flat, own = expected.reshape(-1), reference.reshape(-1)
    right = flat[places]
    error = (actual.reshape(-1)[places].double() - right).abs_()
    usual = right.abs().mul_(tolerance.rtol).add_(least)
    of_own = (own[places].double() - right).abs_().mul_(NATIVE_FACTOR)
    limit = _joined(of_own.clone(), usual, tolerance)
    if not bool((error <= limit).all()):
        at = _spread(flat, _SAMPLE_OF_ERRORS) if flat.numel() > _SAMPLE_OF_ERRORS else slice(None)
        sample = flat[at]
        typical = _typical_by_magnitude(sample, (own[at].double() - sample).abs_(), right).mul_(_TYPICAL_FACTOR)
        limit = _joined(torch.maximum(of_own, torch.minimum(typical, usual * _CAP)), usual, tolerance)
        if not bool((error <= limit).all()):
            return None
    share = 1.0 - float((1.0 - usual / limit).sum()) / flat.numel()
    return 1.0 / share


def is_rounding(expected: torch.Tensor, native_error: torch.Tensor) -> bool:
    """Whether a float64 tensor is nothing but rounding: the reference's typical native-precision error exceeds its root
    mean square. The few elements next to kinks, however far off, do not decide this."""
    return expected.numel() > 0 and _rounding_of(expected, native_error) >= root_mean_square(expected)


def _rounding_of(expected: torch.Tensor, native_error: torch.Tensor) -> float:
    """Return the typical native-precision error of elements that do not exceed it: the square of the mean root of all,
    which a few large errors hardly move."""
    if not expected.numel():
        return 0.0
    return float(torch.where(native_error > expected.abs(), native_error, 0.0).sqrt().mean().square())


def excused_outliers(
    error: torch.Tensor,
    right: torch.Tensor,
    expected: torch.Tensor,
    native_error: torch.Tensor,
    usual: ElementLimits,
    tolerance: Tolerance,
) -> torch.Tensor:
    """Return the elements that are right although outside of their widened limits; bool, of the tensor's shape.

    - The scale is the root mean square where terms cancel to nothing, and at up to 2 % of the elements elsewhere.
      Losses of single intermediate results show in no error of the native-precision reference. Terms have cancelled
      where next to nothing is left and the native-precision result is off by the relative tolerance of it. Elsewhere
      the scale is the root mean square of the row, or that of most rows. Only at very few elements it is that of the
      tensor: where a softmax is 1, its gradient is a difference of terms larger than all of its row.
    - The reference itself may be outside of the usual limits at many elements. Then other computations in its precision
      are as far off at a few elements where its own error is small by chance. Those are excused, up to four times the
      largest native-precision error, relative to the limit with the root mean square as its scale.

    Losses are scattered. Elements that make up most of a column were not lost but left out, and only cancelled ones are
    excused there.
    """
    count = error.numel()
    magnitude = expected.abs()
    limit = (magnitude * tolerance.rtol).add_(tolerance.atol * usual.root_mean_square)
    below = (error <= limit) & ~right
    nothing = below & (magnitude <= NOTHING * magnitude.amax())
    # Where the reference itself is exact nothing has cancelled: powers and exponentials are small beside the largest.
    nothing &= native_error >= magnitude * tolerance.rtol
    lost = _scattered(below & ~nothing, error, native_error)
    # Large rows, as planted ones are, say nothing about losses in the others.
    around = _root_mean_square_around(expected).clamp_(min=usual.scale, max=usual.root_mean_square)
    near = error <= (magnitude * tolerance.rtol).add_(around, alpha=tolerance.atol)
    excused = nothing
    for some, room in ((lost & near, _FEW * count), (lost & ~near, _room_of_all(count))):
        excused = excused | some if int(some.sum()) <= room else excused
    outside = int((native_error > usual.limit).sum())
    few = min(_OUTLIERS * outside, _MAX_OUTLIERS * count)
    if count - int((right | excused).sum()) > few:
        return excused
    most = NATIVE_FACTOR * float((native_error / limit).max())
    return excused | _scattered((error <= limit.mul_(most)) & ~right, error, native_error)


def _room_of_all(count: int) -> float:
    return max(min(_LEAST_OF_ALL, _FEW * count), _FEW_OF_ALL * count)


def _scattered(marked: torch.Tensor, error: torch.Tensor, native_error: torch.Tensor) -> torch.Tensor:
    """Return the marked elements without those that make up most of a column. A column has one index in a dimension
    behind the rows'. A single row may be lost as a whole, as a query's gradient is with one difference. Where the
    native-precision errors are about as large, columns may be lost too."""
    first = next((dimension for dimension, extent in enumerate(marked.shape) if extent > 1), None)
    if first is None or not bool(marked.any()):
        return marked
    kept = marked
    for dimension in range(first + 1, marked.dim()):
        extent = marked.shape[dimension]
        length = marked.numel() // extent
        if extent > 1 and length >= _LEAST_OF_ROW:
            others = tuple(other for other in range(marked.dim()) if other != dimension)
            far = marked & (error > native_error.amax(others, keepdim=True) * ROUNDING_FACTOR)
            kept = kept & ~(far & (far.sum(others, keepdim=True) > _SCATTERED * length))
    return kept
