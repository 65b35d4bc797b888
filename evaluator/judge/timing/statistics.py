"""Statistics of paired samples: medians, the speedup and its interval, and whether a series is fit to be summed up.

The interval is a percentile bootstrap over *pairs* (Efron and Tibshirani, An Introduction to the Bootstrap,
1993, chapter 13): sample ``i`` of the candidate and sample ``i`` of the baseline were taken next to each
other, so resampling them together keeps out whatever drifted over the minute. Of medians it is somewhat
conservative for small numbers of pairs, where the same bootstrap of means would be too narrow.

Resampling takes the pairs for independent. Where a process wanders by itself, they are not, and the interval would
be too narrow by a factor of two to four; ``correlation_factor`` is by how much it has to be wider.
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
_LEAST_SHARE: Final = 0.15
"""A mode of a distribution has at least this share of the samples; less is a few outliers."""


_MOST_SEPARATE: Final = 1000.0
_FEWEST_CORRELATED: Final = 6
"""Of fewer values than this, how much each is like the one before it cannot be told to any use."""
_FACTOR_OF_FEW: Final = 1.5
"""It is taken to be 0.4 then. Of 57 intervals of copies, from five pairs each on two processors with a load of 5,
four did not have 1 in them; with this all had."""
_MOST_CORRELATED: Final = 0.97
_BLOCKS: Final = (3, 5)
_BLOCKS_VARY: Final = 1.8
"""Means of blocks of independent samples vary by so many times what they should in one of six cases."""
_LEAST_SQUARES: Final = 1e-18
"""Values that vary by less, as a mean square, are the same but for rounding."""
_MOST_LOG: Final = 100.0
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
    """How a series moves. ``change``: from its first sample to its last, as a share of the median (Theil's and
    Sen's slope); ``z``: the normal score of Mann's and Kendall's test, far from 0 where that is no chance."""

    change: float
    z: float


def median_ms(samples_ms: Sequence[float]) -> float:
    """The median. Raises ``statistics.StatisticsError`` on no samples."""
    return float(median(samples_ms))


def median_error(samples: Sequence[float], count: int | None = None) -> float:
    """The standard error of the median of these, or of ``count`` such samples, from the median absolute deviation of
    these (as for normal samples)."""
    center = median(samples)
    deviation = 1.4826 * median(abs(sample - center) for sample in samples)
    return float(1.2533 * deviation / (len(samples) if count is None else count) ** 0.5)


def spread(samples_ms: Sequence[float]) -> Spread:
    """Raises ``IndexError`` on no samples."""
    low, q1, middle, q3, high = (float(each) for each in np.quantile(samples_ms, [0.0, 0.25, 0.5, 0.75, 1.0]))
    return Spread(middle, q1, q3, low, high)


def speedup(baseline_ms: Sequence[float], candidate_ms: Sequence[float]) -> float:
    """Median baseline latency / median candidate latency."""
    return median_ms(baseline_ms) / median_ms(candidate_ms)


def speedup_interval(baseline_ms: Sequence[float], candidate_ms: Sequence[float], level: float = 0.95) -> Interval:
    """The paired bootstrap interval of ``speedup``, wider by ``correlation_factor`` on either side. Deterministic for
    the same samples, which are in the order in which they were taken, and above 0.

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
    below, above = (min(_MOST_LOG, factor * max(0.0, math.log(ratio))) for ratio in (value / low, high / value))
    return Interval(value * math.exp(-below), value * math.exp(above), level)


def correlation_factor(series: Sequence[float] | NDArray[np.float64]) -> float:
    """By how many times an interval of ``series`` must be wider, since each value is like the ones before it.

    Two estimates, of which the larger counts; nearly 1 for independent values, and 1.5 for fewer than six. The one is
    that of an autoregressive process of first order: ``sqrt((1 + r) / (1 - r))``, with Student's quantile for as many
    values as ``series`` is worth. ``r`` is the correlation with the value before, without its bias of small samples
    (Marriott and Pope, Bias in the Estimation of Autocorrelations, 1954), and one standard error more. The other holds
    where independent noise hides that correlation: how much means of a few long blocks vary.
    """
    values = np.asarray(series, dtype=float)
    count = len(values)
    centred = values - values.mean()
    squares = float((centred**2).sum())
    if squares <= _LEAST_SQUARES * count:
        return 1.0
    if count < _FEWEST_CORRELATED:
        return _FACTOR_OF_FEW
    found = float((centred[1:] * centred[:-1]).sum()) / squares
    likely = min(_MOST_CORRELATED, max(-_MOST_CORRELATED, (count * found + 1) / (count - 3)))
    correlation = min(_MOST_CORRELATED, max(0.0, likely + math.sqrt((1 - likely**2) / count)))
    wider = (1 + correlation) / (1 - correlation)
    return max(
        math.sqrt(wider) * _student_95(max(1.0, count / wider - 1)) / _NORMAL_95,
        *(_factor_of_blocks(values, blocks) for blocks in _BLOCKS),
    )


def _factor_of_blocks(values: NDArray[np.float64], blocks: int) -> float:
    """From the means of so many blocks; 1 where these vary by chance."""
    length = len(values) // blocks
    if length < 2:
        return 1.0
    means = values[len(values) - blocks * length :].reshape(blocks, length).mean(axis=1)
    varied = length * float(means.var(ddof=1)) / float(values.var(ddof=1))
    return math.sqrt(varied) * _student_95(blocks - 1) / _NORMAL_95 if varied > _BLOCKS_VARY else 1.0


def _student_95(freedom: float) -> float:
    """The 97.5 % quantile of Student's distribution with so many degrees of freedom, 1 at the least, by its expansion
    (Abramowitz and Stegun, 26.7.5): 9.7 in place of 12.7 for 1, and within 4 % from 2 on."""
    z = _NORMAL_95
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
    )
    return z + sum(term / freedom**power for power, term in enumerate(terms, 1))


def widened(interval: Interval, value: float, spread_share: float) -> Interval:
    """``interval`` around ``value`` with another independent source of error in it, whose standard deviation is that
    share of ``value``. Each side grows by itself, since neither need be as far from ``value`` as the other. Errors are
    of the logarithm, so that neither end falls to 0."""
    reach = NormalDist().inv_cdf((1 + interval.level) / 2) * spread_share
    below, above = max(0.0, math.log(value / interval.low)), max(0.0, math.log(interval.high / value))
    low, high = math.hypot(below, reach), math.hypot(above, reach)
    return Interval(value * math.exp(-low), value * math.exp(high), interval.level)


def half_width(interval: Interval, value: float) -> float:
    """Half of the interval's width, as a share of ``value``."""
    return (interval.high - interval.low) / 2 / value


def separation(samples: Sequence[float]) -> float:
    """How far apart the two halves of the best split of the samples are: Ashman's D (Ashman, Bird and Zepf,
    Detecting Bimodality in Astronomical Datasets, 1994), 1000 at the most.

    Any split cuts: samples of one normal distribution come to about 2.7, and a second mode is worth
    mentioning from about 6 on. 0 where there are too few samples for two modes.
    """
    ordered = np.sort(np.asarray(samples, dtype=float))
    count = len(ordered)
    least = max(2, int(np.ceil(_LEAST_SHARE * count)))
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
    """Whether the samples drift, in the order in which they were taken. Needs two samples or more."""
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
