"""Statistics of paired samples: medians, the speedup and its interval, and whether a series is fit to be summed up.

The interval is a percentile bootstrap over *pairs* (Efron and Tibshirani, An Introduction to the Bootstrap, 1993,
chapter 13). Samples ``i`` of candidate and baseline were taken next to each other, so resampling them together removes
any drift over the minute. For medians of few pairs it is somewhat conservative, where the same bootstrap of means would
be too narrow.

Resampling takes the pairs for independent. Where a process drifts by itself they are not, and the interval would be too
narrow by a factor of two to four. ``correlation_factor`` is the factor by which it has to be wider.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist, median
from typing import Final

import numpy as np
from numpy.typing import NDArray

from evaluator.evaluation import Interval

__all__ = [
    "Spread",
    "Trend",
    "correlation_factor",
    "half_width",
    "median_error",
    "median_ms",
    "separation",
    "speedup",
    "speedup_interval",
    "spread",
    "trend",
    "widened",
]

_RESAMPLES: Final = 2000
_SEED: Final = 20240229
_MIN_SHARE: Final = 0.15
"""A mode of a distribution has at least this share of the samples; smaller groups are outliers."""


_MOST_SEPARATE: Final = 1000.0
_MIN_CORRELATED: Final = 6
"""With fewer values than this, the correlation of each with the one before it cannot be estimated usefully."""
_FACTOR_OF_FEW: Final = 1.5
"""The factor for fewer values, from a correlation of 0.4. Of 57 intervals of copies, from five pairs each on two
processors with a load of 5, four did not contain 1; with this factor all did."""
_MAX_CORRELATED: Final = 0.97
_BLOCKS: Final = (3, 5)
_BLOCKS_VARY: Final = 1.8
"""In one of six cases, the means of blocks of independent samples vary by this factor more than expected."""
_LEAST_SQUARES: Final = 1e-18
"""Values that vary by less, as a mean square, are the same but for rounding."""
_MAX_LOG: Final = 100.0
_NORMAL_95: Final = NormalDist().inv_cdf(0.975)


@dataclass(frozen=True)
class Spread:
    """Median, quartiles and extremes, in milliseconds."""

    median_ms: float
    q1_ms: float
    q3_ms: float
    min_ms: float
    max_ms: float


@dataclass(frozen=True)
class Trend:
    """The movement of a series. ``change``: from its first sample to its last, as a share of the median (Theil's and
    Sen's slope). ``z``: the normal score of Mann's and Kendall's test, far from 0 where the movement is not chance."""

    change: float
    z: float


def median_ms(samples_ms: Sequence[float]) -> float:
    """Return the median. Raises ``statistics.StatisticsError`` on no samples."""
    return float(median(samples_ms))


def median_error(samples: Sequence[float], count: int | None = None) -> float:
    """Return the standard error of the median of these samples, or of ``count`` such samples. It is estimated from
    their median absolute deviation (as for normal samples)."""
    center = median(samples)
    deviation = 1.4826 * median(abs(sample - center) for sample in samples)
    return float(1.2533 * deviation / (len(samples) if count is None else count) ** 0.5)


def spread(samples_ms: Sequence[float]) -> Spread:
    """Return the spread of the samples. Raises ``IndexError`` on no samples."""
    low, q1, middle, q3, high = (float(each) for each in np.quantile(samples_ms, [0.0, 0.25, 0.5, 0.75, 1.0]))
    return Spread(middle, q1, q3, low, high)


def speedup(baseline_ms: Sequence[float], candidate_ms: Sequence[float]) -> float:
    """Return median baseline latency / median candidate latency."""
    return median_ms(baseline_ms) / median_ms(candidate_ms)


def speedup_interval(baseline_ms: Sequence[float], candidate_ms: Sequence[float], level: float = 0.95) -> Interval:
    """Return the paired bootstrap interval of ``speedup``, wider by ``correlation_factor`` on either side. The samples
    are in the order of measurement and above 0. The same samples give the same interval.

    Raises ``ValueError`` where the two series are not paired or empty.
    """
    pairs = len(candidate_ms)
    if len(baseline_ms) != pairs or not pairs:
        raise ValueError(f"{len(baseline_ms)} baseline samples, {pairs} of the candidate: not paired")
    chosen = np.random.default_rng(_SEED).integers(pairs, size=(_RESAMPLES, pairs))
    ratios = np.median(np.asarray(baseline_ms)[chosen], axis=1) / np.median(np.asarray(candidate_ms)[chosen], axis=1)
    tail = (1 - level) / 2
    low, high = (float(each) for each in np.quantile(ratios, [tail, 1 - tail]))
    value = speedup(baseline_ms, candidate_ms)
    factor = correlation_factor(np.log(np.asarray(baseline_ms) / np.asarray(candidate_ms)))
    # In logarithms: a ratio may be as many times too large as too small, and never falls to 0.
    below, above = (min(_MAX_LOG, factor * max(0.0, math.log(ratio))) for ratio in (value / low, high / value))
    return Interval(value * math.exp(-below), value * math.exp(above), level)


def correlation_factor(series: Sequence[float] | NDArray[np.float64]) -> float:
    """Return the factor by which an interval of ``series`` must be wider, because its values are correlated.

    The larger of two estimates counts. It is nearly 1 for independent values, and 1.5 for fewer than six.

    - The first is of an autoregressive process of first order: ``sqrt((1 + r) / (1 - r))``, with Student's quantile for
      the number of independent values that ``series`` is worth. ``r`` is the correlation with the value before, plus
      one standard error. Its bias for small samples is removed (Marriott and Pope, Bias in the Estimation of
      Autocorrelations, 1954).
    - The second applies where independent noise hides that correlation: the variation of the means of a few long
      blocks.
    """
    values = np.asarray(series, dtype=float)
    count = len(values)
    centred = values - values.mean()
    squares = float((centred**2).sum())
    if squares <= _LEAST_SQUARES * count:
        return 1.0
    if count < _MIN_CORRELATED:
        return _FACTOR_OF_FEW
    found = float((centred[1:] * centred[:-1]).sum()) / squares
    likely = min(_MAX_CORRELATED, max(-_MAX_CORRELATED, (count * found + 1) / (count - 3)))
    correlation = min(_MAX_CORRELATED, max(0.0, likely + math.sqrt((1 - likely**2) / count)))
    wider = (1 + correlation) / (1 - correlation)
    return max(
        math.sqrt(wider) * _student_95(max(1.0, count / wider - 1)) / _NORMAL_95,
        *(_factor_of_blocks(values, blocks) for blocks in _BLOCKS),
    )


def _factor_of_blocks(values: NDArray[np.float64], blocks: int) -> float:
    """Return the estimate from the means of ``blocks`` blocks; 1 where their variation may be chance."""
    length = len(values) // blocks
    if length < 2:
        return 1.0
    means = values[len(values) - blocks * length :].reshape(blocks, length).mean(axis=1)
    varied = length * float(means.var(ddof=1)) / float(values.var(ddof=1))
    return math.sqrt(varied) * _student_95(blocks - 1) / _NORMAL_95 if varied > _BLOCKS_VARY else 1.0


def _student_95(freedom: float) -> float:
    """Return the 97.5 % quantile of Student's distribution with ``freedom`` degrees of freedom, at least 1. The source
    is its expansion (Abramowitz and Stegun, 26.7.5): 9.7 in place of 12.7 for 1, and within 4 % from 2 on."""
    z = _NORMAL_95
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
    )
    return z + sum(term / freedom**power for power, term in enumerate(terms, 1))


def widened(interval: Interval, value: float, spread_share: float) -> Interval:
    """Return ``interval`` around ``value`` with another independent source of error, whose standard deviation is
    ``spread_share`` of ``value``. Each side grows by itself, since they may be at unequal distances from ``value``.
    Errors are of the logarithm, so that neither end falls to 0."""
    reach = NormalDist().inv_cdf((1 + interval.level) / 2) * spread_share
    below, above = max(0.0, math.log(value / interval.low)), max(0.0, math.log(interval.high / value))
    low, high = math.hypot(below, reach), math.hypot(above, reach)
    return Interval(value * math.exp(-low), value * math.exp(high), interval.level)


def half_width(interval: Interval, value: float) -> float:
    """Return half of the interval's width, as a share of ``value``."""
    return (interval.high - interval.low) / 2 / value


def separation(samples: Sequence[float]) -> float:
    """Return the distance of the two halves of the best split of the samples: Ashman's D, at most 1000 (Ashman, Bird
    and Zepf, Detecting Bimodality in Astronomical Datasets, 1994).

    Any split has some distance: samples of one normal distribution come to about 2.7, and a second mode is worth
    mentioning from about 6 on. 0 where there are too few samples for two modes.
    """
    ordered = np.sort(np.asarray(samples, dtype=float))
    count = len(ordered)
    least = max(2, int(np.ceil(_MIN_SHARE * count)))
    if count < 2 * least:
        return 0.0
    splits = range(least, count - least + 1)
    within = [_squares(ordered[:at]) + _squares(ordered[at:]) for at in splits]
    at = splits[int(np.argmin(within))]
    low, high = ordered[:at], ordered[at:]
    distance = float(high.mean() - low.mean())
    if distance == 0.0:
        return 0.0
    variance = float(low.var() + high.var())
    return min(_MOST_SEPARATE, 2**0.5 * distance / variance**0.5) if variance else _MOST_SEPARATE


def trend(samples: Sequence[float]) -> Trend:
    """Return the trend of the samples, in the order in which they were taken. Needs two samples or more."""
    values = np.asarray(samples, dtype=float)
    count = len(values)
    first, second = np.triu_indices(count, 1)
    differences = values[second] - values[first]
    slope = float(np.median(differences / (second - first)))
    score = float(np.sign(differences).sum())
    deviation = (count * (count - 1) * (2 * count + 5) / 18) ** 0.5
    return Trend(slope * (count - 1) / float(np.median(values)), score / deviation)


def _squares(values: NDArray[np.float64]) -> float:
    return float(((values - values.mean()) ** 2).sum())
