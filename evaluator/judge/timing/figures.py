"""The rules by which the paired samples of a track become figures: an interval, notes, and what they rest on."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from evaluator.config import SamplingPlan
from evaluator.evaluation import Interval, Latency, SampleSeries
from evaluator.judge.errors import Violation
from evaluator.judge.link import TimedCall
from evaluator.judge.timing.clocks import Clocks, check_baseline, differences_ms, most_overhead_ms
from evaluator.judge.timing.statistics import (
    half_width,
    median_ms,
    separation,
    speedup,
    speedup_interval,
    spread,
    trend,
    widened,
)
from evaluator.judge.timing.timed_call import Caller
from evaluator.judge.timing.timeline import medians_ms
from evaluator.judge.timing.track import Track
from evaluator.judge.timing.waiting import sched_delay_ms
from evaluator.protocol.control_page import CallMode

__all__ = ["FigureRules", "Measured", "device_ms", "in_percent"]

_SAME_MODEL: Final = {"cpu": (0.01, 0.01, 0.01), "cuda": (0.0015, 0.0003, 0.001)}
"""The difference of device times between two processes of the same model, as one standard deviation: a share, and
milliseconds of a forward alone and with a backward. More calls do not reduce it, because the place of a process in
memory is decided once. On an H200, medians of 15 µs were 0.3 µs apart, of 20 µs 0.15 µs, of 0.65 and 1.5 ms 0.15 %.
Calls of 15 µs with their backward, whose kernels another thread requests, were 1 µs apart. The CPU's figures are
guesses, and not too small."""
_SAME_LAUNCHES: Final = {"cpu": 0.0, "cuda": 0.01}
"""The same, in milliseconds, where a device waits for the requests of a process: a guess, and not too small."""
_ENOUGH: Final = 0.5
"""Sampling also ends once the sampled interval is within ± this part of that standard deviation: more calls would not
make the reported interval narrower."""
_LAUNCH_BOUND_MS: Final = 0.05
_MATTERS: Final = 0.25
"""A correction below this part of the targeted width of the interval is made at once, without a further measurement."""
_MOST_APART: Final = {"cpu": 3.0, "cuda": 2.0}
"""An interval whose upper end is more than this many times its lower one is too wide for a figure. On a CPU, whose
other programs are not under control, an honest interval is wide more often, and says so."""
_MOST_TOLD: Final = 10.0
_TWO_MODES: Final = 6.0
_TWO_MODES_SHARE: Final = 0.02
_DRIFTS_Z: Final = 3.3
_DRIFTS_SHARE: Final = 0.02


@dataclass(frozen=True)
class Measured:
    """The figures of one track. ``corrected``: a time correction was made that is visible in the figures or their
    interval. ``unsettled``: the reason why the figures are too uncertain to be reported; empty where they are not."""

    corrected: bool
    unsettled: str
    speedup: float
    interval: Interval
    latency: Latency
    samples: SampleSeries
    notes: tuple[str, ...]
    details: dict[str, Any]


@dataclass(frozen=True)
class FigureRules:
    """The rules for one candidate's samples. ``floor_ms``: the least time of moving the bytes of a call."""

    caller: Caller
    plan: SamplingPlan
    floor_ms: Callable[[Track], float]

    def figures(
        self, track: Track, candidate: Sequence[TimedCall], baseline: Sequence[TimedCall], order: Sequence[str]
    ) -> Measured:
        """Check the samples against the rules, and sum them up. ``order`` says for each pair which side was first.

        Raises ``Violation`` where a rule was broken, and ``InfrastructureFault`` where the baseline has changed.
        """
        split = track.mode is CallMode.BACKWARD
        series = SampleSeries(
            candidate_device_ms=tuple(device_ms(candidate)),
            baseline_device_ms=tuple(device_ms(baseline)),
            candidate_outer_ms=tuple(_outer_ms(candidate)),
            baseline_outer_ms=tuple(_outer_ms(baseline)),
            order=tuple(order),
            candidate_forward_ms=tuple(call.report.forward_ms for call in candidate) if split else (),
            baseline_forward_ms=tuple(call.report.forward_ms for call in baseline) if split else (),
        )
        details: dict[str, Any] = {}
        device, calm = self.caller.device, self.caller.calibrations.by_mode[track.mode]
        # On a CPU, no work goes on while its process is stopped.
        most_ms = most_overhead_ms(series, calm.overhead_ms) if device.asynchronous else math.inf
        clocks = Clocks(series, device.torch_device.type, most_ms)
        details["clock_overhead_ms"] = clocks.check([call.waited_ms for call in candidate])
        self._check_floor(track, series, details)
        details["calm"] = self._calm(track, (*candidate, *baseline))
        # The calibration's calls were released otherwise than those of the warm track.
        if device.asynchronous and track.cold:
            check_baseline(series, calm.baseline_ms)
        corrected_ms, at_most = clocks.corrected_ms()
        value = speedup(series.baseline_device_ms, corrected_ms)
        sched_delay = sched_delay_ms(candidate, baseline)
        details["steps_ms"] = {
            "candidate": medians_ms([call.steps_ms for call in candidate]),
            "baseline": medians_ms([call.steps_ms for call in baseline]),
        }
        details["held_up_ms"] = {"candidate": median_ms(sched_delay[0]), "baseline": median_ms(sched_delay[1])}
        sampled = _from_to(series, at_most, *sched_delay)
        interval = widened(sampled, value, self._spread(track, series.baseline_device_ms, corrected_ms))
        latency = Latency(
            median_ms(corrected_ms),
            median_ms(series.baseline_device_ms),
            median_ms(series.candidate_outer_ms),
            median_ms(series.baseline_outer_ms),
        )
        details |= _distributions(series, corrected_ms)
        notes = self._notes(track, series, corrected_ms, half_width(sampled, value))
        added = median_ms(corrected_ms) - median_ms(series.candidate_device_ms)
        enough = self.narrow_enough(track, series.baseline_device_ms, corrected_ms)
        spoiled = half_width(sampled, value) > enough >= _raw_half_width(series)
        corrected = added > _MATTERS * self.plan.half_width * median_ms(corrected_ms) or spoiled
        most_apart = _MOST_APART[self.caller.device.torch_device.type]
        unsettled = _why_unsettled(series, at_most, sampled, most_apart)
        return Measured(corrected, unsettled, value, interval, latency, series, tuple(notes), details)

    def narrow_enough(self, track: Track, *sides: Sequence[float]) -> float:
        """Return the half width, as a share of the speedup, that is narrow enough for a sampled interval."""
        return max(self.plan.half_width, _ENOUGH * self._spread(track, *sides))

    def _notes(self, track: Track, series: SampleSeries, corrected_ms: Sequence[float], share: float) -> list[str]:
        """Return the notes for readers of the figures."""
        name = track.title
        notes = []
        enough = self.narrow_enough(track, series.baseline_device_ms, corrected_ms)
        if share > enough and track.cold:
            notes.append(
                f"{name}: the interval is {in_percent(share)}, wider than the ± {100 * enough:.2g} % "
                f"aimed at, after {len(corrected_ms)} pairs of samples"
            )
        if median_ms(corrected_ms) < _LAUNCH_BOUND_MS:
            notes.append(f"{name}: below {1000 * _LAUNCH_BOUND_MS:.0f} µs, launch overhead dominates")
        added = median_ms(corrected_ms) - median_ms(series.candidate_device_ms)
        if added > self.plan.half_width * median_ms(corrected_ms):
            notes.append(
                f"{name}: {added:.4g} ms were added to what the candidate's process measured, because the judge's "
                "clock took so much longer than for the baseline, or is in so much doubt"
            )
        for side, samples in (("candidate", corrected_ms), ("baseline", series.baseline_device_ms)):
            quartiles = spread(samples)
            wide = quartiles.q3_ms - quartiles.q1_ms > _TWO_MODES_SHARE * quartiles.median_ms
            if wide and separation(samples) > _TWO_MODES:
                notes.append(
                    f"{name}: the {side}'s latencies have two modes, around {quartiles.q1_ms:.4g} and "
                    f"{quartiles.q3_ms:.4g} ms: one number says little about them"
                )
        if len(corrected_ms) >= self.plan.min_samples:
            ratios = [
                baseline_ms / candidate_ms
                for baseline_ms, candidate_ms in zip(series.baseline_device_ms, corrected_ms, strict=True)
            ]
            moved = trend(ratios)
            if abs(moved.change) > _DRIFTS_SHARE and abs(moved.z) > _DRIFTS_Z:
                notes.append(f"{name}: the speedup drifted by {100 * moved.change:+.1f} % while it was sampled")
        return notes

    def _spread(self, track: Track, *sides: Sequence[float]) -> float:
        """Return the standard deviation, as a share, of the ratio of two processes' medians with the same model."""
        share, forward_ms, with_backward_ms = _SAME_MODEL[self.caller.device.torch_device.type]
        least_ms = forward_ms if track.mode is CallMode.FORWARD else with_backward_ms
        if not track.cold:
            least_ms += _SAME_LAUNCHES[self.caller.device.torch_device.type]
        return math.hypot(*(share + least_ms / median_ms(samples) for samples in sides))

    def _calm(self, track: Track, calls: Sequence[TimedCall]) -> dict[str, Any]:
        """Describe the device before the calls, and before the candidate had the shared memory."""
        calm, seen = self.caller.calibrations.by_mode[track.mode], self.caller.interference
        return {
            "prelude_ms": median_ms([call.precheck_ms for call in calls]),
            "prelude_before_ms": calm.precheck_ms,
            "baseline_before_ms": calm.baseline_ms,
            "disturbed": seen.disturbed,
            "disturbance": seen.disturbance,
            "preludes": seen.prechecks,
            "late": seen.late,
        }

    def _check_floor(self, track: Track, series: SampleSeries, details: dict[str, Any]) -> None:
        """Require that no sample is below the least time of moving the bytes. Raises ``Violation``."""
        floor_ms = details["floor_ms"] = self.floor_ms(track)
        fastest = min(series.candidate_device_ms)
        if fastest < floor_ms:
            raise Violation(
                f"a call in {fastest:.4f} ms is faster than this device can move the bytes of its inputs and outputs, "
                f"which takes {floor_ms:.4f} ms at the least"
            )


def in_percent(share: float) -> str:
    """Return a half width in words. With a few unrelated calls it can be any number."""
    return f"± {100 * share:.1f} %" if share < _MOST_TOLD else f"more than ± {100 * _MOST_TOLD:.0f} %"


def _from_to(
    series: SampleSeries,
    at_most_ms: Sequence[float],
    candidate_delay_ms: Sequence[float],
    baseline_delay_ms: Sequence[float],
) -> Interval:
    """Return the interval between two extremes. The lower end has all possible time corrections, and the baseline
    without its waiting. The upper end has no correction, and the candidate without its waiting."""
    low = speedup_interval(differences_ms(series.baseline_device_ms, baseline_delay_ms), at_most_ms)
    high = speedup_interval(series.baseline_device_ms, differences_ms(series.candidate_device_ms, candidate_delay_ms))
    return Interval(low.low, high.high, low.level)


def _why_unsettled(series: SampleSeries, at_most_ms: Sequence[float], sampled: Interval, most_apart: float) -> str:
    """Return the reason why these figures are too uncertain; empty where they are not. The difference of two processes
    of one model is left out here: it is no noise, and another measurement would not reduce it."""
    claimed_ms = median_ms(series.candidate_device_ms)
    added_ms = median_ms(at_most_ms) - claimed_ms
    if added_ms > claimed_ms:
        return (
            f"up to {added_ms:.4g} ms of each call may lie outside of what the candidate's process measured, "
            f"and within it are {claimed_ms:.4g} ms"
        )
    if sampled.high > most_apart * sampled.low:
        return (
            f"after {len(at_most_ms)} pairs of samples the speedup is anything from {sampled.low:.3g} to "
            f"{sampled.high:.3g}"
        )
    return ""


def _raw_half_width(series: SampleSeries) -> float:
    """Return the half width of the interval of the processes' own measurements."""
    sides = series.baseline_device_ms, series.candidate_device_ms
    return half_width(speedup_interval(*sides), speedup(*sides))


def _distributions(series: SampleSeries, corrected_ms: Sequence[float]) -> dict[str, Any]:
    """Return quartiles and extremes of both sides' device times, and of their parts on the training track."""
    parts: dict[str, Sequence[float]] = {"candidate_ms": corrected_ms, "baseline_ms": series.baseline_device_ms}
    for side, total, forward in (
        ("candidate", series.candidate_device_ms, series.candidate_forward_ms),
        ("baseline", series.baseline_device_ms, series.baseline_forward_ms),
    ):
        if forward:
            parts[f"{side}_forward_ms"] = forward
            parts[f"{side}_backward_ms"] = differences_ms(total, forward)
    ratios = [
        baseline_ms / candidate_ms
        for baseline_ms, candidate_ms in zip(series.baseline_device_ms, corrected_ms, strict=True)
    ]
    return {
        "pairs": len(corrected_ms),
        **{name: asdict(spread(samples)) for name, samples in parts.items()},
        "separation": {name: separation(parts[name]) for name in ("candidate_ms", "baseline_ms")},
        "drift": asdict(trend(ratios)) if len(ratios) > 1 else None,
    }


def device_ms(calls: Sequence[TimedCall]) -> list[float]:
    return [call.report.device_ms for call in calls]


def _outer_ms(calls: Sequence[TimedCall]) -> list[float]:
    return [call.outer_ms for call in calls]
