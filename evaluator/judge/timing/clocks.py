"""Checks of the runner's clock by the judge's clock around it.

A candidate's process reports the time of its calls on the device. The time between its clock and the judge's should be
the same as for the baseline. Missing time is added as a time correction, or the evaluation is rejected. All functions
here are about series of calls, whatever made the calls.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from evaluator.errors import InfrastructureFault
from evaluator.evaluation import SampleSeries
from evaluator.judge.errors import ClocksDisagree
from evaluator.judge.timing.statistics import median_error, median_ms

__all__ = ["Clocks", "check_baseline", "differences_ms", "most_overhead_ms"]

_SLOWER_BASELINE: Final = 1.25
_SLACK_MS: Final = 1.0
_SLACK_SHARE: Final = 0.1
_CALM_SLACK_MS: Final = 0.1
_CALM_SLACK_SHARE: Final = 0.02
_NOISE_FACTOR: Final = 4.0
_FLOOR_MS: Final = {"cpu": 0.05, "cuda": 0.02}
"""Below this, mostly the overhead of clocks and events is measured."""
_PROCESSES_DIFFER: Final = {"cpu": (0.0, 0.0), "cuda": (0.03, 0.01)}
"""The difference of the time between the clocks for two processes of the same model, however often they are called:
milliseconds, and a share of that time. On an H200, it was 9 µs (root mean square of 15 evaluations), and 24 µs at the
most. With tensors of 6 GiB, which take the judge 5 ms, it was 75 µs (root mean square of 8)."""
_CORRECTION_FACTOR: Final = {"cpu": math.inf, "cuda": 3.0}
"""The excess over this difference and the noise counts this many times, up to all of the missing time. A small excess
may be chance. Hiding one and a half times the limit of detection gains nothing."""
_MAX_LEFT_OUT: Final = {"cpu": 0.25, "cuda": 1.0}
"""The most undetected missing time, as a share of the reported time. On a CPU, other programs make the doubt large, so
this limit applies more often."""
_MAX_DOUBT: Final = {"cpu": 1.0, "cuda": math.inf}
"""The most doubt, as a share of the reported time. With more, the true time could be anything. Calls of microseconds on
a GPU are always in such doubt, and there only the share ``_MAX_LEFT_OUT`` can be left out."""


@dataclass(frozen=True)
class Clocks:
    """Both clocks of a ``series``, on a device of some ``kind`` (``cpu`` or ``cuda``). ``most_overhead_ms``: the most
    time that may lie between them for the baseline."""

    series: SampleSeries
    kind: str
    most_overhead_ms: float

    def check(self, waited_ms: Sequence[float]) -> dict[str, Any]:
        """Require the same time between the clocks as for the baseline. Return the compared figures, in milliseconds.

        The comparison allows for a stated slack, and for the noise of both medians. It also allows for the candidate's
        waiting for a processor in each call (``waited_ms``), so that no candidate fails for a busy machine. Time that a
        runner hides below these limits gains it nothing (see ``corrected_ms``).

        Raises ``ClocksDisagree``, or ``InfrastructureFault`` where the baseline now has the same excess, but had not at
        first.
        """
        series = self.series
        candidate_overheads, baseline_overheads = self._overheads
        longest = max(median_ms(series.baseline_outer_ms), median_ms(series.candidate_device_ms))
        slack = _SLACK_MS + _SLACK_SHARE * longest
        noise = _NOISE_FACTOR * (median_error(candidate_overheads) + median_error(baseline_overheads))
        overhead_ms = median_ms(baseline_overheads)
        unexplained = [
            max(0.0, between - waited) for between, waited in zip(candidate_overheads, waited_ms, strict=True)
        ]
        excess = median_ms(unexplained) - slack - noise
        if excess > overhead_ms:
            raise ClocksDisagree(
                f"inner and outer clock disagree: {median_ms(candidate_overheads):.3f} ms of each call lie outside "
                f"of what the runner measured, {overhead_ms:.3f} ms for the baseline, and {slack + noise:.3f} ms "
                "more are allowed"
            )
        if excess > self.most_overhead_ms:
            raise InfrastructureFault(
                f"{median_ms(candidate_overheads):.3f} ms of each of the candidate's calls and {overhead_ms:.3f} ms "
                "of the baseline's lie outside of what the runners measured, at most "
                f"{self.most_overhead_ms:.3f} ms for the baseline before"
            )
        return {
            "candidate": median_ms(candidate_overheads),
            "baseline": overhead_ms,
            "baseline_at_most": self.most_overhead_ms if math.isfinite(self.most_overhead_ms) else None,
            "slack": slack,
            "noise": noise,
        }

    def corrected_ms(self) -> tuple[list[float], list[float]]:
        """Return the candidate's device times with the time correction, and with the correction and its doubt.

        The time between both clocks should be the baseline's, or ``most_overhead_ms`` if that is less. Its median
        counts, over those calls that decide the candidate's figure. A correction is made where the median exceeds the
        expected time by more than one of two limits. The first is the difference of two processes plus four standard
        errors. The second is the share of the device time that may be left out.

        The standard errors are doubt: they widen the interval, whose lower end decides the rank. They are both sides'
        errors. The candidate's count at most twice as much as the baseline's, since it could make its own as large as
        it likes. On a GPU, a small excess is corrected by less. An honest series stays unchanged, as steady as the
        device's clock, unless a busy machine leaves nothing but doubt.
        """
        series = self.series
        claimed_ms, least_ms = median_ms(series.candidate_device_ms), _FLOOR_MS[self.kind]
        candidate_overheads, overheads = self._overheads
        # Of both sides: a call that is disturbed outside of one clock is not disturbed within it.
        baseline_overheads = _of_fast_calls(overheads, series.baseline_device_ms)
        fast = _of_fast_calls(candidate_overheads, series.candidate_device_ms)
        missing = median_ms(fast) - min(self.most_overhead_ms, median_ms(baseline_overheads))
        # All calls of the baseline tell its noise: of three, the least deviations say next to nothing. The candidate's
        # other calls do not decide its figure, and could be noisy on purpose.
        error = median_error(overheads, len(baseline_overheads))
        doubt = _NOISE_FACTOR * math.hypot(error, min(median_error(fast), 2 * error))
        unnoticed = min(
            doubt + self._differ_ms(median_ms(baseline_overheads)), max(_MAX_LEFT_OUT[self.kind] * claimed_ms, least_ms)
        )
        if missing <= unnoticed and doubt <= max(_MAX_DOUBT[self.kind] * claimed_ms, least_ms):
            return list(series.candidate_device_ms), list(series.candidate_device_ms)
        # Corrections are made call by call where one call has left out more than the others.
        left_out = [max(0.0, missing, overhead - median_ms(overheads)) for overhead in candidate_overheads]
        without, beyond = (
            [
                sample + self._correction_ms(more, unnoticed, doubt_ms)
                for sample, more in zip(series.candidate_device_ms, left_out, strict=True)
            ]
            for doubt_ms in (0.0, doubt)
        )
        return without, beyond

    @property
    def _overheads(self) -> tuple[list[float], list[float]]:
        """The time between the clocks in each call, of the candidate and of the baseline."""
        series = self.series
        return (
            differences_ms(series.candidate_outer_ms, series.candidate_device_ms),
            differences_ms(series.baseline_outer_ms, series.baseline_device_ms),
        )

    def _differ_ms(self, length_ms: float) -> float:
        """Return the allowed difference of a time of this length between two processes of one model."""
        least_ms, share = _PROCESSES_DIFFER[self.kind]
        return least_ms + share * length_ms

    def _correction_ms(self, missing_ms: float, unnoticed_ms: float, doubt_ms: float) -> float:
        """Return the correction of a call with this much missing time, of which ``unnoticed_ms`` would not have been
        noticed."""
        times = _CORRECTION_FACTOR[self.kind]
        if math.isinf(times):
            return max(0.0, missing_ms) + doubt_ms
        return min(max(0.0, missing_ms) + doubt_ms, times * max(0.0, missing_ms - unnoticed_ms))


def most_overhead_ms(series: SampleSeries, calm_ms: float) -> float:
    """Return the most time that may lie between the two clocks for the baseline: ``calm_ms``, as before the candidate
    had the shared memory, plus the slack. Without this limit, a candidate that prolongs the baseline's calls could hide
    as much time of its own."""
    return calm_ms + _calm_slack_ms(series)


def check_baseline(series: SampleSeries, calm_ms: float) -> None:
    """Require about the time ``calm_ms`` that the baseline took before the candidate had the shared memory. Raises
    ``InfrastructureFault``, since the machine may as well be the cause."""
    now_ms = median_ms(series.baseline_device_ms)
    doubt_ms = _NOISE_FACTOR * median_error(series.baseline_device_ms) + _calm_slack_ms(series)
    if now_ms > _SLOWER_BASELINE * calm_ms + doubt_ms:
        raise InfrastructureFault(
            f"the baseline takes {now_ms:.3f} ms, and took {calm_ms:.3f} ms before the candidate had the shared memory"
        )


def differences_ms(outer: Sequence[float], inner: Sequence[float]) -> list[float]:
    """Return the differences ``outer - inner``, element by element."""
    return [a - b for a, b in zip(outer, inner, strict=True)]


def _calm_slack_ms(series: SampleSeries) -> float:
    return _CALM_SLACK_MS + _CALM_SLACK_SHARE * median_ms(series.baseline_outer_ms)


def _of_fast_calls(values: Sequence[float], claimed_ms: Sequence[float]) -> list[float]:
    """Return the values of those calls whose device time is at most the median, because these decide the median."""
    middle = median_ms(claimed_ms)
    return [value for value, claimed in zip(values, claimed_ms, strict=True) if claimed <= middle]
