"""The coverage of the true speedup by its interval: ``python -m benchmarks.coverage --tracks 300``.

The calls are simulated; the rules are those of the judge's own sampler. Each row is a kind of noise. An interval states
95 %, and 93 % are required. The exit status is 1 where a row has less. No device is needed.
"""

from __future__ import annotations

import argparse
import itertools
import math
import statistics
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Final, cast

import numpy as np

from evaluator.config import SamplingPlan
from evaluator.judge.device.telemetry import NoSensors
from evaluator.judge.link import TimedCall
from evaluator.judge.timing.figures import Measured
from evaluator.judge.timing.interference import InterferenceMonitor
from evaluator.judge.timing.sampling import Pair, Sampler
from evaluator.judge.timing.statistics import half_width
from evaluator.judge.timing.timed_call import Calibration, Calibrations, Caller
from evaluator.judge.timing.track import INFERENCE
from evaluator.protocol.control_page import CallMode, CallReport

__all__ = ["NOISES", "Covered", "cover", "measured_track"]

Noise = Callable[[np.random.Generator, float], Iterator[float]]
"""A function of a random generator and a scale.

It yields the time of each call, as a factor with a long-run median of 1.
"""

_OVERHEAD_MS: Final = 0.8
_LEAST: Final = 0.93
_SPEEDUP: Final = 2.0


def _normal(chance: np.random.Generator, scale: float) -> Iterator[float]:
    while True:
        yield math.exp(scale * chance.normal())


def _heavy(chance: np.random.Generator, scale: float) -> Iterator[float]:
    while True:
        yield math.exp(scale * chance.standard_t(2))


def _two_modes(chance: np.random.Generator, scale: float) -> Iterator[float]:
    while True:
        yield math.exp(scale * (chance.choice((-1.0, 1.0)) + 0.2 * chance.normal()))


def _autoregressive(correlation: float) -> Noise:
    def noise(chance: np.random.Generator, scale: float) -> Iterator[float]:
        state, share = chance.normal(), math.sqrt(1 - correlation**2)
        while True:
            yield math.exp(scale * state)
            state = correlation * state + share * chance.normal()

    return noise


def _drifting(chance: np.random.Generator, scale: float) -> Iterator[float]:
    """Yield factors that drift in the same way on both sides, as while a device warms up, with normal noise."""
    for number in itertools.count():
        yield math.exp(0.05 * (number - 30) / 60 + scale * chance.normal())


NOISES: Final[dict[str, Noise]] = {
    "normal": _normal,
    "heavy tails (t, 2 degrees)": _heavy,
    "two modes": _two_modes,
    "drift of both, 5 % in 60 calls": _drifting,
    "AR(1) 0.8, each by itself": _autoregressive(0.8),
    "AR(1) 0.95, each by itself": _autoregressive(0.95),
}
_SCALES: Final = (0.003, 0.01, 0.03)
"""Standard deviations of a call, as shares; heavy tails have none."""


@dataclass(frozen=True)
class Covered:
    """The results of ``tracks`` tracks.

    ``unsettled`` counts those without a settled speedup, and ``covered`` the settled ones whose interval contains the
    true speedup. ``pairs`` is the mean number of pairs. ``half_width`` is the median of the interval's half-widths, as
    a share.
    """

    tracks: int
    unsettled: int
    covered: int
    pairs: float
    half_width: float

    @property
    def share(self) -> float:
        settled = self.tracks - self.unsettled
        return self.covered / settled if settled else math.nan


def measured_track(
    candidate: Iterator[float], baseline: Iterator[float], plan: SamplingPlan, kind: str, chance: np.random.Generator
) -> Measured:
    """Measure one track by the judge's sampler. The iterators give the time of each call, in milliseconds."""
    device = SimpleNamespace(
        torch_device=SimpleNamespace(type=kind), asynchronous=kind == "cuda", sensors=NoSensors("made up")
    )
    calibrations = Calibrations({CallMode.FORWARD: Calibration(_OVERHEAD_MS, 1.0, 0.1)})
    caller = SimpleNamespace(
        device=device, calibrations=calibrations, latest_ms={}, baseline_ms={}, interference=InterferenceMonitor()
    )
    sampler = Sampler(cast(Caller, caller), plan, lambda _track: 0.0, lambda _message, _share: None)

    def call(takes_ms: float) -> TimedCall:
        outer_ms = takes_ms + _OVERHEAD_MS + chance.normal(0.0, 0.002)
        return TimedCall(outer_ms, CallReport(takes_ms, 0, 0, 0.0), precheck_ms=0.1)

    sampling = sampler.measure(INFERENCE)
    try:
        number = next(sampling)
        while True:
            pair = Pair(call(next(candidate)), call(next(baseline)), candidate_first=number % 2 == 0)
            number = sampling.send(pair)
    except StopIteration as stop:
        measured: Measured = stop.value
        return measured


def cover(noise: Noise, scale: float, plan: SamplingPlan, kind: str, tracks: int, seed: int = 1) -> Covered:
    """Measure ``tracks`` tracks of a candidate that takes half a millisecond, and a baseline that takes twice that."""
    unsettled = covered = 0
    pairs: list[int] = []
    widths: list[float] = []
    for number in range(tracks):
        chance = np.random.default_rng([seed, number])
        candidate = map((1.0 / _SPEEDUP).__mul__, noise(chance, scale))
        baseline = map((1.0).__mul__, noise(chance, scale))
        found = measured_track(candidate, baseline, plan, kind, chance)
        pairs.append(len(found.samples.order))
        widths.append(half_width(found.interval, found.speedup))
        if found.unsettled:
            unsettled += 1
        else:
            covered += found.interval.low <= _SPEEDUP <= found.interval.high
    return Covered(tracks, unsettled, covered, statistics.fmean(pairs), statistics.median(widths))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.coverage", description=__doc__)
    parser.add_argument("--tracks", type=int, default=300, help="how many of each kind")
    parser.add_argument("--only", default="", help="kinds of noise whose name contains this")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda", help="whose sampling plan and rules")
    given = parser.parse_args()
    plan = SamplingPlan.usual(given.device, "full")
    print(f"{'noise':<28} {'scale':>6} {'covered':>8} {'unsettled':>10} {'pairs':>6} {'half-width':>11}")
    worst = 1.0
    for name, noise in NOISES.items():
        if given.only not in name:
            continue
        for scale in _SCALES:
            found = cover(noise, scale, plan, given.device, given.tracks)
            worst = min(worst, found.share)
            print(
                f"{name:<28} {100 * scale:>4.1f} % {100 * found.share:>6.1f} % {found.unsettled:>10} "
                f"{found.pairs:>6.1f} {100 * found.half_width:>8.2f} %",
                flush=True,
            )
    return 0 if worst >= _LEAST else 1


if __name__ == "__main__":
    sys.exit(main())
