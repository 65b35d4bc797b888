"""Whether the runner's clock can be believed, by the judge's around it.

A candidate's process says how long its calls took on the device. What lies between that and the judge's clock should be
what it is for the baseline; what is missing is put back, or the evaluation is rejected. All of this is of series of
calls, and knows nothing of how they were made.
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
"""Below this, clocks and events themselves are what is measured."""
_PROCESSES_DIFFER: Final = {"cpu": (0.0, 0.0), "cuda": (0.03, 0.01)}
"""What lies between the clocks differs by so much between two processes of the same model, however
often they are called: milliseconds, and a share of it. On an H200: 9 µs, root mean square of 15 evaluations, 24 µs at
the most; with tensors of 6 GiB, which the judge is at for 5 ms, 75 µs, root mean square of 8."""
_PUT_BACK: Final = {"cpu": math.inf, "cuda": 3.0}
"""The excess over that and the noise counts so many times, up to all of the missing time: a little excess may be
chance. Hiding half as much again as the limit of detection gains nothing."""
_MOST_LEFT_OUT: Final = {"cpu": 0.25, "cuda": 1.0}
"""Of what a runner says that a call takes; on a CPU, where others make the doubt large, it matters more often."""
_MOST_DOUBT: Final = {"cpu": 1.0, "cuda": math.inf}
"""Likewise: with more than that, what a runner says could be anything. What takes microseconds on a GPU is always in
such doubt, and there only ``_MOST_LEFT_OUT`` of it can be left out."""


@dataclass(frozen=True)
class Clocks:
    """Both clocks of a ``series``, on a device of some ``kind`` (``cpu`` or ``cuda``). ``most_overhead_ms``: what may
    lie between them for the baseline, at the most."""

    series: SampleSeries
    kind: str
    most_overhead_ms: float

    def check(self, waited_ms: Sequence[float]) -> dict[str, Any]:
        """What lies between them must be what it is for the baseline. Returns what was compared, in milliseconds.

        The comparison allows for a stated slack, for the noise of both medians, and for the time that the candidate's
        threads waited for a processor in each call (``waited_ms``), so that a busy machine fails nobody; what a runner
        hides below that it gains nothing from (see ``credited``). Raises ``ClocksDisagree``, or
        ``InfrastructureFault`` where it is the same for the baseline, but was not at first.
        """
        series = self.series
        ours, theirs = self._overheads
        longest = max(median_ms(series.baseline_outer_ms), median_ms(series.candidate_device_ms))
        slack = _SLACK_MS + _SLACK_SHARE * longest
        noise = _NOISE_FACTOR * (median_error(ours) + median_error(theirs))
        overhead_ms = median_ms(theirs)
        unexplained = [max(0.0, between - waited) for between, waited in zip(ours, waited_ms, strict=True)]
        excess = median_ms(unexplained) - slack - noise
        if excess > overhead_ms:
            raise ClocksDisagree(
                f"inner and outer clock disagree: {median_ms(ours):.3f} ms of each call lie outside of what the runner "
                f"measured, {overhead_ms:.3f} ms for the baseline, and {slack + noise:.3f} ms more are allowed"
            )
        if excess > self.most_overhead_ms:
            raise InfrastructureFault(
                f"{median_ms(ours):.3f} ms of each of the candidate's calls and {overhead_ms:.3f} ms of the baseline's "
                f"lie outside of what the runners measured, at most {self.most_overhead_ms:.3f} ms for the baseline "
                "before"
            )
        return {
            "candidate": median_ms(ours),
            "baseline": overhead_ms,
            "baseline_at_most": self.most_overhead_ms if math.isfinite(self.most_overhead_ms) else None,
            "slack": slack,
            "noise": noise,
        }

    def credited(self) -> tuple[list[float], list[float]]:
        """The candidate's device times, moved up where the judge's clock says that something is left out of them: by
        what is left out, and by that and the doubt about it.

        What lies between both clocks should be what it is for the baseline, or ``most_overhead_ms`` if that is less.
        Where its median, of those calls that the candidate's figure rests on, is above that by more than two
        processes differ and four standard errors, or than the share of the device time that may be left out, the
        difference is put back. Those standard errors are doubt, and make the interval wider, whose lower end is what
        ranks. They are both sides' errors; the candidate's count no more than twice the baseline's, since it could
        make its own as large as it likes. On a GPU, less is put back of what is little more. An honest series is left
        as it is, so it stays as steady as the device's clock, unless a busy machine leaves nothing but doubt.
        """
        series = self.series
        claimed_ms, least_ms = median_ms(series.candidate_device_ms), _FLOOR_MS[self.kind]
        ours, overheads = self._overheads
        # Of both: who is disturbed outside of the one clock is not within it.
        theirs = _of_fast_calls(overheads, series.baseline_device_ms)
        fast = _of_fast_calls(ours, series.candidate_device_ms)
        missing = median_ms(fast) - min(self.most_overhead_ms, median_ms(theirs))
        # How noisy the baseline's are is told by all: of three, what deviates least says next to nothing. Those of the
        # candidate's calls that its figure does not rest on could be noisy on purpose.
        error = median_error(overheads, len(theirs))
        doubt = _NOISE_FACTOR * math.hypot(error, min(median_error(fast), 2 * error))
        unnoticed = min(
            doubt + self._differ_ms(median_ms(theirs)), max(_MOST_LEFT_OUT[self.kind] * claimed_ms, least_ms)
        )
        if missing <= unnoticed and doubt <= max(_MOST_DOUBT[self.kind] * claimed_ms, least_ms):
            return list(series.candidate_device_ms), list(series.candidate_device_ms)
        # Call by call where one has left out more than the others.
        left_out = [max(0.0, missing, overhead - median_ms(overheads)) for overhead in ours]
        without, beyond = (
            [
                sample + self._put_back_ms(more, unnoticed, doubt_ms)
                for sample, more in zip(series.candidate_device_ms, left_out, strict=True)
            ]
            for doubt_ms in (0.0, doubt)
        )
        return without, beyond

    @property
    def _overheads(self) -> tuple[list[float], list[float]]:
        """What lies between the clocks in each call, the candidate's and the baseline's."""
        series = self.series
        return (
            differences_ms(series.candidate_outer_ms, series.candidate_device_ms),
            differences_ms(series.baseline_outer_ms, series.baseline_device_ms),
        )

    def _differ_ms(self, length_ms: float) -> float:
        """By how much something of this length may differ between two processes of one model."""
        least_ms, share = _PROCESSES_DIFFER[self.kind]
        return least_ms + share * length_ms

    def _put_back_ms(self, missing_ms: float, unnoticed_ms: float, doubt_ms: float) -> float:
        """What is added to a call of which so much was left out; so much would not have been noticed."""
        times = _PUT_BACK[self.kind]
        if math.isinf(times):
            return max(0.0, missing_ms) + doubt_ms
        return min(max(0.0, missing_ms) + doubt_ms, times * max(0.0, missing_ms - unnoticed_ms))


def most_overhead_ms(series: SampleSeries, calm_ms: float) -> float:
    """What may lie between the two clocks for the baseline, at the most, where that was ``calm_ms`` before the
    candidate had the shared memory: no more, give or take the slack. A candidate that could prolong what happens around
    the baseline's calls could hide as much of its own."""
    return calm_ms + _calm_slack_ms(series)


def check_baseline(series: SampleSeries, calm_ms: float) -> None:
    """The baseline must take about as long as the ``calm_ms`` that it took before the candidate had the shared memory.
    Raises ``InfrastructureFault``: the cause may as well be the machine."""
    now_ms = median_ms(series.baseline_device_ms)
    doubt_ms = _NOISE_FACTOR * median_error(series.baseline_device_ms) + _calm_slack_ms(series)
    if now_ms > _SLOWER_BASELINE * calm_ms + doubt_ms:
        raise InfrastructureFault(
            f"the baseline takes {now_ms:.3f} ms, and took {calm_ms:.3f} ms before the candidate had the shared memory"
        )


def differences_ms(outer: Sequence[float], inner: Sequence[float]) -> list[float]:
    """What is left of each of the one without the other's."""
    return [a - b for a, b in zip(outer, inner, strict=True)]


def _calm_slack_ms(series: SampleSeries) -> float:
    return _CALM_SLACK_MS + _CALM_SLACK_SHARE * median_ms(series.baseline_outer_ms)


def _of_fast_calls(values: Sequence[float], claimed_ms: Sequence[float]) -> list[float]:
    """Of the calls whose device time is no more than the median, which is what decides it."""
    middle = median_ms(claimed_ms)
    return [value for value, claimed in zip(values, claimed_ms, strict=True) if claimed <= middle]
