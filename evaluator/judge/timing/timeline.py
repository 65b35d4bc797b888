"""The time of each step of judging a call, by the judge's clock."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from evaluator.judge.timing.statistics import median_ms

__all__ = ["Timeline", "medians_ms"]


class Timeline:
    """The steps of one call, one after the other from now on. ``ms``: milliseconds by step."""

    def __init__(self) -> None:
        self.ms: dict[str, float] = {}
        self._begin = time.perf_counter()

    def note(self, step: str) -> None:
        """Note that ``step`` ends now; it began at the end of the one before."""
        end = time.perf_counter()
        self.ms[step] = self.ms.get(step, 0.0) + 1000 * (end - self._begin)
        self._begin = end


def medians_ms(calls: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the median of each step over the calls that had it, in the order of the steps, in milliseconds."""
    steps = dict.fromkeys(step for call in calls for step in call)
    return {step: median_ms([call[step] for call in calls if step in call]) for step in steps}
