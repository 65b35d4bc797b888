"""Intervals of shares over problems, and of differences between two shares over the same problems.

Closed forms: two reads of the same results agree. ``docs/methodology.md`` has the assumptions and the sources.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import Final

from kerneljudge.terms.outcomes import Interval

__all__ = ["difference_interval", "share_interval"]

_LEVEL: Final = 0.95
_NORMAL: Final = NormalDist().inv_cdf(0.5 + _LEVEL / 2)
_PSEUDO: Final = _NORMAL**2
"""Wilson's centre has as many pseudo-observations. The estimates of variance and of correlation get as many here."""


def share_interval(values: Sequence[float]) -> Interval | None:
    """Return the interval of the mean of ``values``, one from 0 to 1 for each problem; ``None`` without any.

    Of values that are 0 or 1 it is Wilson's score interval. Values in between vary less, and count as more problems.
    """
    if not values:
        return None
    count = len(values)
    mean = math.fsum(values) / count
    # The variance of a share, which no values from 0 to 1 with this mean exceed.
    most = mean * (1 - mean)
    effective = float(count)
    if most > 0:
        squares = math.fsum((value - mean) ** 2 for value in values)
        effective = max(effective, count * count * most / (squares + _PSEUDO * most))
    wider = 1 + _PSEUDO / effective
    centre = (mean + _PSEUDO / (2 * effective)) / wider
    half = _NORMAL * math.sqrt(most / effective + _PSEUDO / (4 * effective**2)) / wider
    # Without rounding, the mean is always inside, and the ends within 0 and 1.
    return Interval(max(0.0, min(centre - half, mean)), min(1.0, max(centre + half, mean)), _LEVEL)


def difference_interval(ours: Sequence[float], theirs: Sequence[float]) -> Interval | None:
    """Return the interval of the mean of ``ours`` minus that of ``theirs``; ``None`` without any.

    The values at one place are of the same problem. Each mean has its own interval, and the correlation of the values
    narrows the difference's. Raises ``ValueError`` where they are not equally many.
    """
    if len(ours) != len(theirs):
        raise ValueError(f"pairs need as many values: {len(ours)} and {len(theirs)}")
    first, second = share_interval(ours), share_interval(theirs)
    if first is None or second is None:
        return None
    count = len(ours)
    mean, other = math.fsum(ours) / count, math.fsum(theirs) / count
    shared = _correlation(ours, theirs) * count / (count + _PSEUDO)
    below, above = (mean - first.low, second.high - other), (first.high - mean, other - second.low)
    difference = mean - other
    return Interval(difference - _joined(*below, shared), difference + _joined(*above, shared), _LEVEL)


def _joined(one: float, other: float, correlation: float) -> float:
    return math.sqrt(max(0.0, one * one - 2 * correlation * one * other + other * other))


def _correlation(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Return Pearson's correlation, 0 where one side does not vary."""
    count = len(ours)
    mean, other = math.fsum(ours) / count, math.fsum(theirs) / count
    squares = math.fsum((each - mean) ** 2 for each in ours) * math.fsum((each - other) ** 2 for each in theirs)
    if squares <= 0:
        return 0.0
    products = math.fsum((a - mean) * (b - other) for a, b in zip(ours, theirs, strict=True))
    return max(-1.0, min(1.0, products / math.sqrt(squares)))
