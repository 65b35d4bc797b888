"""Timing: paired samples of candidate and baseline, and the rules by which they become figures.

Samples are taken in turn (A B B A ...) until the interval of the speedup is narrow enough or a cap is reached.
Raw samples are kept; everything else is derived from them.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from evaluator.config import SamplingPlan
from evaluator.evaluation import Interval, Latency, SampleSeries
from evaluator.judge.device.telemetry import Telemetry
from evaluator.judge.errors import ClocksDisagree, Violation
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
from evaluator.judge.timing.waiting import held_up_ms
from evaluator.protocol.control_page import CallMode

__all__ = ["INFERENCE", "INFERENCE_WARM", "TRAINING", "Measured", "Pair", "Sampler", "Sampling", "Track"]

_CHECK_GROWTH: Final = 1.3
_TELLING_PAIRS: Final = 20
"""With fewer pairs than this, sampling ends early only where the interval is narrower in proportion."""
_CLOSER_LOOKS: Final = {"cpu": (10, 20, 40), "cuda": (10,)}
"""So many pairs at the least a closer look goes on to, one after the other while they are needed. On a CPU, what
lies between the clocks varies by a fifth of a millisecond, and calls may take less: of identical models with calls of
0.2 ms, forty pairs still leave one in twelve in doubt, in a simulation with 0.1 ms of noise."""
_CLOSER_LOOK_S: Final = 1.0
"""Each closer look may take as long as this, however little time the plan has."""
_SAME_MODEL: Final = {"cpu": (0.01, 0.01, 0.01), "cuda": (0.0015, 0.0003, 0.001)}
"""By how much device times differ between two processes of the same model, as one standard deviation: a share, and
milliseconds of a forward alone and with a backward. More calls do not make it less: where a process has its memory is
decided once. On an H200, medians of 15 µs were 0.3 µs apart, of 20 µs 0.15 µs, of 0.65 and 1.5 ms 0.15 %; with its
backward, whose kernels another thread asks for, what takes 15 µs was 1 µs apart. On a CPU it is a guess that is not too
small."""
_SAME_LAUNCHES: Final = {"cpu": 0.0, "cuda": 0.01}
"""Likewise, in milliseconds, where a device waits for what a process asks of it: a guess that is not too small."""
_ENOUGH: Final = 0.5
"""Sampling ends as well once the sampled interval is within ± this part of that standard deviation: more calls would
not make the reported one narrower."""
_WARM_UP_PAIRS: Final = {"cpu": 3, "cuda": 8}
"""On a CPU, calls as short as those of small tensors are seldom as near to each other as would be settled."""
_LEAST_COUNTED: Final = 5
"""For each pair that is not counted, more than so many may be."""
_SETTLED: Final = 0.2
_COUNTS: Final = 0.02
"""Who takes as long as before, but for so much, has nothing left to settle."""
_LAUNCH_BOUND_MS: Final = 0.05
_MATTERS: Final = 0.25
"""What is less than this part of the interval's width that is aimed at is put back at once."""
_MOST_APART: Final = {"cpu": 3.0, "cuda": 2.0}
"""An interval whose upper end is more than so many times its lower one says too little for a figure. On a CPU, whose
other programs nobody controls, an honest interval is wide more often, and says so."""
_MOST_TOLD: Final = 10.0
_TWO_MODES: Final = 6.0
_TWO_MODES_SHARE: Final = 0.02
_DRIFTS_Z: Final = 3.3
_DRIFTS_SHARE: Final = 0.02


@dataclass(frozen=True)
class Track:
    """What is timed. ``cold``: with nothing of the inputs or weights in the caches, and the device busy until the call
    has asked for its first kernels; else as in a loop of one's own, what asking takes included."""

    name: str
    mode: CallMode
    cold: bool = True

    @property
    def title(self) -> str:
        return self.name.replace("_", ", ")


INFERENCE: Final = Track("inference", CallMode.FORWARD)
INFERENCE_WARM: Final = Track("inference_warm", CallMode.FORWARD, cold=False)
TRAINING: Final = Track("training", CallMode.BACKWARD)


@dataclass(frozen=True)
class Measured:
    """The figures of one track. ``put_back``: time was added that the candidate's process had left out, and so much
    that it shows, in the figures or in their interval. ``unsettled``: why the figures say too little to be reported;
    empty where they say enough."""

    put_back: bool
    unsettled: str
    speedup: float
    interval: Interval
    latency: Latency
    samples: SampleSeries
    notes: tuple[str, ...]
    details: dict[str, Any]


@dataclass(frozen=True)
class Pair:
    """One call of each side, verified, on inputs of the same kind; which of them was first."""

    candidate: TimedCall
    baseline: TimedCall
    candidate_first: bool


Sampling = Generator[int, Pair, Measured]
"""One track as it is sampled: asks for pairs, by their number, is sent one each time, and comes to its figures. The
candidate is to be first where the number is even; others that share the baseline's call may want it otherwise."""


@dataclass
class _Pairs:
    """The samples of one look, or of several that belong together."""

    telemetry: Telemetry
    candidate: list[TimedCall] = field(default_factory=list)
    baseline: list[TimedCall] = field(default_factory=list)
    order: list[str] = field(default_factory=list)

    def add(self, pair: Pair) -> None:
        self.candidate.append(pair.candidate)
        self.baseline.append(pair.baseline)
        self.order.append("candidate first" if pair.candidate_first else "baseline first")


@dataclass
class Sampler:
    """Samples tracks of one candidate.

    ``floor_ms`` is the least time that moving the bytes of a call takes; ``report`` says how far it is.
    ``share_of_time``: how much of the time that passes is this one's.
    """

    caller: Caller
    plan: SamplingPlan
    floor_ms: Callable[[Track], float]
    report: Callable[[str, float], None]
    share_of_time: float = 1.0

    def measure(self, track: Track) -> Sampling:
        """Sample ``track``; anew and with more pairs where the clocks disagree, something had to be put back, or the
        figures are unsettled: a busy machine can do that, too, all the more with few samples. Closer looks are judged
        together, or each would be another chance for who leaves something out.

        Raises ``Violation`` where a rule of measurement was broken, and ``InfrastructureFault`` where the
        baseline is not what it was.
        """
        with contextlib.suppress(ClocksDisagree):
            measured = yield from self._measure(track, self.plan, self._no_pairs())
            if not (measured.put_back or measured.unsettled):
                return measured
        *looks, last = _CLOSER_LOOKS[self.caller.device.torch_device.type]
        pairs = self._no_pairs()
        for least in looks:
            with contextlib.suppress(ClocksDisagree):
                measured = yield from self._measure(track, self._closely(least), pairs)
                if not (measured.put_back or measured.unsettled):
                    return measured
        return (yield from self._measure(track, self._closely(last), pairs))

    def _no_pairs(self) -> _Pairs:
        return _Pairs(Telemetry(self.caller.device.sensors))

    def _closely(self, pairs: int) -> SamplingPlan:
        """The plan with so many pairs at the least, or as many as there is time for."""
        fewest = _CLOSER_LOOKS[self.caller.device.torch_device.type][0]
        return replace(
            self.plan,
            least_samples=max(fewest, self.plan.min_samples),
            min_samples=max(pairs, self.plan.min_samples),
            max_samples=max(pairs, self.plan.max_samples),
            warm_samples=max(pairs, self.plan.warm_samples),
            budget_s=max(_CLOSER_LOOK_S, self.plan.budget_s),
        )

    def _measure(self, track: Track, plan: SamplingPlan, pairs: _Pairs) -> Sampling:
        """Sample until ``pairs`` are as many as the plan asks for, and sum all of them up."""
        candidate, baseline = pairs.candidate, pairs.baseline
        begin = time.monotonic()
        before = 0
        if not candidate:
            before, settled = yield from self._warm_up(track, plan)
            if settled is not None:
                pairs.add(settled)
        telemetry = pairs.telemetry
        most = plan.max_samples if track.cold else max(plan.warm_samples, plan.least_samples)
        look_at = plan.min_samples
        while len(candidate) < most:
            telemetry.sample()
            pairs.add((yield before + len(candidate)))
            count = len(candidate)
            if self.share_of_time * (time.monotonic() - begin) > plan.budget_s and count >= plan.least_samples:
                break
            if count >= look_at:
                look_at = max(count + 1, round(_CHECK_GROWTH * count))
                value = speedup(_device(baseline), _device(candidate))
                share = half_width(speedup_interval(_device(baseline), _device(candidate)), value)
                self.report(f"{track.name}: {value:.3f}x, {_in_percent(share)}", count / most)
                # A few pairs may lie close together where a process wanders slowly: they have to be all the closer.
                if share <= min(1.0, count / _TELLING_PAIRS) * self._enough(
                    track, _device(baseline), _device(candidate)
                ):
                    break
        telemetry.sample()
        telemetry.finish()
        measured = self._conclude(track, pairs)
        moved = [f"{track.title}: {note}" for note in telemetry.notes()]
        return replace(
            measured,
            notes=(*measured.notes, *moved),
            details=measured.details | {"telemetry": telemetry.summary()},
        )

    def _warm_up(self, track: Track, plan: SamplingPlan) -> Generator[int, Pair, tuple[int, Pair | None]]:
        """Pairs that are not counted, until both sides take about as long as in one of the last two calls before:
        allocators, autotuners and clocks settle. Not only the last: where memory is lean, the first pair finds the
        allocators empty.

        Returns how many there were, and one that counts all the same, since it is as long as any can be told to be.
        """
        ours, theirs = self.caller.latest_ms.get(track.mode), self.caller.baseline_ms.get(track.mode)
        earlier = [[ours, theirs[-1]]] if track.cold and ours is not None and theirs else []
        most = min(_WARM_UP_PAIRS[self.caller.device.torch_device.type], (plan.max_samples - 1) // _LEAST_COUNTED)
        # Both sides have been called, and on a CPU that was a moment ago.
        least = 1 if self.caller.device.outlives_processes else 0
        most = max(least, most)
        for number in range(most):
            pair = yield number
            now = [call.report.device_ms for call in (pair.candidate, pair.baseline)]
            if any(_is_settled(now, then, _COUNTS) for then in earlier[-2:]):
                return number, pair
            if any(_is_settled(now, then, _SETTLED) for then in earlier[-2:]):
                return number + 1, None
            earlier.append(now)
        return most, None

    def _conclude(self, track: Track, pairs: _Pairs) -> Measured:
        """Check the samples against the rules, and sum them up."""
        candidate, baseline = pairs.candidate, pairs.baseline
        split = track.mode is CallMode.BACKWARD
        series = SampleSeries(
            candidate_device_ms=tuple(_device(candidate)),
            baseline_device_ms=tuple(_device(baseline)),
            candidate_outer_ms=tuple(_outer(candidate)),
            baseline_outer_ms=tuple(_outer(baseline)),
            order=tuple(pairs.order),
            candidate_forward_ms=tuple(call.report.forward_ms for call in candidate) if split else (),
            baseline_forward_ms=tuple(call.report.forward_ms for call in baseline) if split else (),
        )
        details: dict[str, Any] = {}
        device, calm = self.caller.device, self.caller.learnt.calm[track.mode]
        # Nothing works on a CPU while its process is stopped.
        most_ms = most_overhead_ms(series, calm.overhead_ms) if device.outlives_processes else math.inf
        clocks = Clocks(series, device.torch_device.type, most_ms)
        details["clock_overhead_ms"] = clocks.check([call.waited_ms for call in candidate])
        self._check_floor(track, series, details)
        details["calm"] = self._calm(track, (*candidate, *baseline))
        # Calls were released otherwise than on the warm track when all was calm.
        if device.outlives_processes and track.cold:
            check_baseline(series, calm.baseline_ms)
        credited, at_most = clocks.credited()
        value = speedup(series.baseline_device_ms, credited)
        held_up = held_up_ms(candidate, baseline)
        details["steps_ms"] = {
            "candidate": medians_ms([call.steps_ms for call in candidate]),
            "baseline": medians_ms([call.steps_ms for call in baseline]),
        }
        details["held_up_ms"] = {"candidate": median_ms(held_up[0]), "baseline": median_ms(held_up[1])}
        sampled = _from_to(series, at_most, *held_up)
        interval = widened(sampled, value, self._spread(track, series.baseline_device_ms, credited))
        latency = Latency(
            median_ms(credited),
            median_ms(series.baseline_device_ms),
            median_ms(series.candidate_outer_ms),
            median_ms(series.baseline_outer_ms),
        )
        details |= _distributions(series, credited)
        notes = self._notes(track, series, credited, half_width(sampled, value))
        added = median_ms(credited) - median_ms(series.candidate_device_ms)
        enough = self._enough(track, series.baseline_device_ms, credited)
        spoiled = half_width(sampled, value) > enough >= _raw_half_width(series)
        put_back = added > _MATTERS * self.plan.half_width * median_ms(credited) or spoiled
        most_apart = _MOST_APART[self.caller.device.torch_device.type]
        unsettled = _why_unsettled(series, at_most, sampled, most_apart)
        return Measured(put_back, unsettled, value, interval, latency, series, tuple(notes), details)

    def _notes(self, track: Track, series: SampleSeries, credited: Sequence[float], share: float) -> list[str]:
        """What whoever reads the figures should know."""
        name = track.title
        notes = []
        enough = self._enough(track, series.baseline_device_ms, credited)
        if share > enough and track.cold:
            notes.append(
                f"{name}: the interval is {_in_percent(share)}, wider than the ± {100 * enough:.2g} % "
                f"aimed at, after {len(credited)} pairs of samples"
            )
        if median_ms(credited) < _LAUNCH_BOUND_MS:
            notes.append(f"{name}: below {1000 * _LAUNCH_BOUND_MS:.0f} µs, launch overhead dominates")
        added = median_ms(credited) - median_ms(series.candidate_device_ms)
        if added > self.plan.half_width * median_ms(credited):
            notes.append(
                f"{name}: {added:.4g} ms were added to what the candidate's process measured, because the judge's "
                "clock took so much longer than for the baseline, or is in so much doubt"
            )
        for side, samples in (("candidate", credited), ("baseline", series.baseline_device_ms)):
            quartiles = spread(samples)
            wide = quartiles.q3_ms - quartiles.q1_ms > _TWO_MODES_SHARE * quartiles.median_ms
            if wide and separation(samples) > _TWO_MODES:
                notes.append(
                    f"{name}: the {side}'s latencies have two modes, around {quartiles.q1_ms:.4g} and "
                    f"{quartiles.q3_ms:.4g} ms: one number says little about them"
                )
        if len(credited) >= self.plan.min_samples:
            ratios = [theirs / ours for theirs, ours in zip(series.baseline_device_ms, credited, strict=True)]
            moved = trend(ratios)
            if abs(moved.change) > _DRIFTS_SHARE and abs(moved.z) > _DRIFTS_Z:
                notes.append(f"{name}: the speedup drifted by {100 * moved.change:+.1f} % while it was sampled")
        return notes

    def _spread(self, track: Track, *sides: Sequence[float]) -> float:
        """The standard deviation, as a share, of the ratio of two processes' medians, if their models are the same."""
        share, forward_ms, with_backward_ms = _SAME_MODEL[self.caller.device.torch_device.type]
        least_ms = forward_ms if track.mode is CallMode.FORWARD else with_backward_ms
        if not track.cold:
            least_ms += _SAME_LAUNCHES[self.caller.device.torch_device.type]
        return math.hypot(*(share + least_ms / median_ms(samples) for samples in sides))

    def _enough(self, track: Track, *sides: Sequence[float]) -> float:
        """Half of the width, as a share of the speedup, that a sampled interval need not be narrower than."""
        return max(self.plan.half_width, _ENOUGH * self._spread(track, *sides))

    def _calm(self, track: Track, calls: Sequence[TimedCall]) -> dict[str, Any]:
        """What was seen of the device before calls, and before the candidate had the shared memory."""
        calm, seen = self.caller.learnt.calm[track.mode], self.caller.calmness
        return {
            "prelude_ms": median_ms([call.prelude_ms for call in calls]),
            "prelude_before_ms": calm.prelude_ms,
            "baseline_before_ms": calm.baseline_ms,
            "disturbed": seen.disturbed,
            "disturbance": seen.disturbance,
            "preludes": seen.preludes,
            "late": seen.late,
        }

    def _check_floor(self, track: Track, series: SampleSeries, details: dict[str, Any]) -> None:
        """No sample may be below what moving the bytes takes."""
        floor_ms = details["floor_ms"] = self.floor_ms(track)
        fastest = min(series.candidate_device_ms)
        if fastest < floor_ms:
            raise Violation(
                f"a call in {fastest:.4f} ms is faster than this device can move the bytes of its inputs and outputs, "
                f"which takes {floor_ms:.4f} ms at the least"
            )


def _in_percent(share: float) -> str:
    """A half width in words. Of a few calls that have nothing in common it can be any number."""
    return f"± {100 * share:.1f} %" if share < _MOST_TOLD else f"more than ± {100 * _MOST_TOLD:.0f} %"


def _is_settled(now: Sequence[float], then: Sequence[float], share: float) -> bool:
    """Whether both sides take as long as then, give or take this share of it."""
    return all(abs(new - old) <= share * old for new, old in zip(now, then, strict=True))


def _from_to(
    series: SampleSeries,
    at_most_ms: Sequence[float],
    candidate_held_up_ms: Sequence[float],
    baseline_held_up_ms: Sequence[float],
) -> Interval:
    """From the lower end with all that may have been left out put back, and the baseline without what held it up, to
    the upper one with nothing put back, and the candidate without what held it up."""
    low = speedup_interval(differences_ms(series.baseline_device_ms, baseline_held_up_ms), at_most_ms)
    high = speedup_interval(series.baseline_device_ms, differences_ms(series.candidate_device_ms, candidate_held_up_ms))
    return Interval(low.low, high.high, low.level)


def _why_unsettled(series: SampleSeries, at_most_ms: Sequence[float], sampled: Interval, most_apart: float) -> str:
    """Why these figures say too little; empty where they say enough. How much two processes of one model differ is
    left out here: that is no noise, and another measurement would not find less of it."""
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
    """That of the interval of what the processes measured themselves."""
    sides = series.baseline_device_ms, series.candidate_device_ms
    return half_width(speedup_interval(*sides), speedup(*sides))


def _distributions(series: SampleSeries, credited: Sequence[float]) -> dict[str, Any]:
    """Quartiles and extremes of both sides' device times, and of what they consist of on the training track."""
    parts: dict[str, Sequence[float]] = {"candidate_ms": credited, "baseline_ms": series.baseline_device_ms}
    for side, total, forward in (
        ("candidate", series.candidate_device_ms, series.candidate_forward_ms),
        ("baseline", series.baseline_device_ms, series.baseline_forward_ms),
    ):
        if forward:
            parts[f"{side}_forward_ms"] = forward
            parts[f"{side}_backward_ms"] = differences_ms(total, forward)
    ratios = [theirs / ours for theirs, ours in zip(series.baseline_device_ms, credited, strict=True)]
    return {
        "pairs": len(credited),
        **{name: asdict(spread(samples)) for name, samples in parts.items()},
        "separation": {name: separation(parts[name]) for name in ("candidate_ms", "baseline_ms")},
        "drift": asdict(trend(ratios)) if len(ratios) > 1 else None,
    }


def _device(calls: Sequence[TimedCall]) -> list[float]:
    return [call.report.device_ms for call in calls]


def _outer(calls: Sequence[TimedCall]) -> list[float]:
    return [call.outer_ms for call in calls]
