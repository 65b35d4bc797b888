"""Statistics of paired samples: medians, the speedup and its interval.

The interval is a percentile bootstrap over *pairs* (Efron and Tibshirani, An Introduction to the Bootstrap,
1993, chapter 13): sample ``i`` of the candidate and sample ``i`` of the baseline were taken next to each
other, so resampling them together keeps out whatever drifted over the minute.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from statistics import median

from evaluator.evaluation import Interval

__all__ = ["median_error", "median_ms", "speedup", "speedup_interval"]

_RESAMPLES = 1000
_SEED = 20240229


def median_ms(samples_ms: Sequence[float]) -> float:
    """The median. Raises ``statistics.StatisticsError`` on no samples."""
    return float(median(samples_ms))


def median_error(samples: Sequence[float]) -> float:
    """The standard error of the median, from the median absolute deviation (as for normal samples)."""
    center = median(samples)
    deviation = 1.4826 * median(abs(sample - center) for sample in samples)
    return float(1.2533 * deviation / len(samples) ** 0.5)


def speedup(baseline_ms: Sequence[float], candidate_ms: Sequence[float]) -> float:
    """Median baseline latency / median candidate latency."""
    return median_ms(baseline_ms) / median_ms(candidate_ms)


def speedup_interval(baseline_ms: Sequence[float], candidate_ms: Sequence[float], level: float = 0.95) -> Interval:
    """The paired bootstrap interval of ``speedup``. Deterministic for the same samples.

    Raises ``ValueError`` where the two series are not paired or empty.
    """
    if len(baseline_ms) != len(candidate_ms) or not baseline_ms:
        raise ValueError(f"{len(baseline_ms)} baseline samples, {len(candidate_ms)} of the candidate: not paired")
    pairs = list(zip(baseline_ms, candidate_ms, strict=True))
    generator = random.Random(_SEED)  # noqa: S311 - resampling, no secret
    ratios = []
    for _ in range(_RESAMPLES):
        resample = generator.choices(pairs, k=len(pairs))
        ratios.append(speedup([pair[0] for pair in resample], [pair[1] for pair in resample]))
    ratios.sort()
    tail = (1 - level) / 2
    return Interval(ratios[round(tail * (_RESAMPLES - 1))], ratios[round((1 - tail) * (_RESAMPLES - 1))], level)
