"""Sampling: pairs of calls of candidate and baseline, until they are enough for figures.

Samples are taken in turn (A B B A ...) until the interval of the speedup is narrow enough or a cap is reached. Raw
samples are kept; everything else is derived from them (``evaluator.judge.timing.figures``).
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from evaluator.config import SamplingPlan
from evaluator.judge.device.telemetry import Telemetry
from evaluator.judge.errors import ClocksDisagree
from evaluator.judge.link import TimedCall
from evaluator.judge.timing.figures import FigureRules, Measured, device_ms, in_percent
from evaluator.judge.timing.statistics import half_width, speedup, speedup_interval
from evaluator.judge.timing.timed_call import Caller
from evaluator.judge.timing.track import Track

__all__ = ["Pair", "Sampler", "Sampling"]

_CHECK_GROWTH: Final = 1.3
_TELLING_PAIRS: Final = 20
"""With fewer pairs than this, sampling ends early only where the interval is narrower in proportion."""
_CLOSER_LOOKS: Final = {"cpu": (10, 20, 40), "cuda": (10,)}
"""The least numbers of pairs of further measurements, one after the other while they are needed. On a CPU, the time
between the clocks varies by a fifth of a millisecond, and calls may take less. In a simulation of identical models with
calls of 0.2 ms and 0.1 ms of noise, forty pairs still left one in twelve in doubt."""
_CLOSER_LOOK_S: Final = 1.0
"""Each further measurement may take this long, in seconds, however little time the plan has."""
_WARM_UP_PAIRS: Final = {"cpu": 3, "cuda": 8}
"""The most pairs that are not counted. On a CPU, short calls, as of small tensors, are seldom near enough to each other
to count as settled."""
_MIN_COUNTED: Final = 5
"""For each pair that is not counted, the plan must leave more than this many."""
_SETTLED: Final = 0.2
_COUNTS: Final = 0.02
"""A side whose times changed by less than this share has nothing left to settle."""


@dataclass(frozen=True)
class Pair:
    """One verified call of each side on inputs of the same kind, and which of them was first."""

    candidate: TimedCall
    baseline: TimedCall
    candidate_first: bool


Sampling = Generator[int, Pair, Measured]
"""The sampling of one track: it yields the number of each pair that it asks for, is sent the pair, and returns the
figures. The candidate should be first where the number is even; candidates that share the baseline's call may need
another order."""


@dataclass
class _Pairs:
    """The samples of one measurement, or of several that belong together."""

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
    """The sampler of one candidate's tracks.

    ``floor_ms``: the least time of moving the bytes of a call. ``report``: takes the progress. ``share_of_time``: the
    share of the passing time that counts for this candidate.
    """

    caller: Caller
    plan: SamplingPlan
    floor_ms: Callable[[Track], float]
    report: Callable[[str, float], None]
    share_of_time: float = 1.0

    def measure(self, track: Track) -> Sampling:
        """Sample ``track``, and again with more pairs where the clocks disagree. Where the plan wants figures settled,
        sample again those that were corrected or are too uncertain. A busy machine can cause these as well, all the
        more with few samples. Further measurements are judged together: each alone would be another chance for a
        candidate that leaves something out.

        Raises ``Violation`` where a rule of measurement was broken, and ``InfrastructureFault`` where the baseline has
        changed.
        """
        with contextlib.suppress(ClocksDisagree):
            measured = yield from self._measure(track, self.plan, self._no_pairs())
            if self._is_enough(measured):
                return measured
        *looks, last = _CLOSER_LOOKS[self.caller.device.torch_device.type]
        pairs = self._no_pairs()
        for least in looks:
            with contextlib.suppress(ClocksDisagree):
                measured = yield from self._measure(track, self._closely(least), pairs)
                if self._is_enough(measured):
                    return measured
        return (yield from self._measure(track, self._closely(last), pairs))

    def _is_enough(self, measured: Measured) -> bool:
        return not self.plan.settles or not (measured.corrected or measured.unsettled)

    def _no_pairs(self) -> _Pairs:
        return _Pairs(Telemetry(self.caller.device.sensors))

    def _closely(self, pairs: int) -> SamplingPlan:
        """Return the plan with at least this many pairs, or as many as there is time for."""
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
        rules = FigureRules(self.caller, self.plan, self.floor_ms)
        begin = time.monotonic()
        before = 0
        if not candidate:
            before, settled = yield from self._warm_up(track, plan)
            if settled is not None:
                pairs.add(settled)
        telemetry = pairs.telemetry
        most = plan.max_samples if track.cold else max(plan.warm_samples, plan.least_samples)
        next_check = plan.min_samples
        while len(candidate) < most:
            telemetry.sample()
            pairs.add((yield before + len(candidate)))
            count = len(candidate)
            if self.share_of_time * (time.monotonic() - begin) > plan.budget_s and count >= plan.least_samples:
                break
            if count >= next_check:
                next_check = max(count + 1, round(_CHECK_GROWTH * count))
                value = speedup(device_ms(baseline), device_ms(candidate))
                share = half_width(speedup_interval(device_ms(baseline), device_ms(candidate)), value)
                self.report(f"{track.name}: {value:.3f}x, {in_percent(share)}", count / most)
                # Where a process drifts slowly, a few pairs may lie close together: these must be all the closer.
                if share <= min(1.0, count / _TELLING_PAIRS) * rules.narrow_enough(
                    track, device_ms(baseline), device_ms(candidate)
                ):
                    break
        telemetry.sample()
        telemetry.finish()
        measured = rules.figures(track, candidate, baseline, pairs.order)
        moved = [f"{track.title}: {note}" for note in telemetry.notes()]
        return replace(
            measured,
            notes=(*measured.notes, *moved),
            details=measured.details | {"telemetry": telemetry.summary()},
        )

    def _warm_up(self, track: Track, plan: SamplingPlan) -> Generator[int, Pair, tuple[int, Pair | None]]:
        """Make pairs that are not counted, until both sides take about as long as in one of the last two calls before.
        Meanwhile allocators, autotuners and clocks settle. The last call alone is not enough: with a lean plan, the
        first pair finds the allocators empty.

        Returns their number, and a last pair that counts all the same where its times are as close as can be told.
        """
        candidate_ms, baseline_ms = self.caller.latest_ms.get(track.mode), self.caller.baseline_ms.get(track.mode)
        earlier = [[candidate_ms, baseline_ms[-1]]] if track.cold and candidate_ms is not None and baseline_ms else []
        most = min(_WARM_UP_PAIRS[self.caller.device.torch_device.type], (plan.max_samples - 1) // _MIN_COUNTED)
        # Both sides have been called, and on a CPU that was a moment ago.
        least = 1 if self.caller.device.asynchronous else 0
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


def _is_settled(now: Sequence[float], then: Sequence[float], share: float) -> bool:
    """Whether both sides take as long as ``then``, within this share of it."""
    return all(abs(new - old) <= share * old for new, old in zip(now, then, strict=True))
