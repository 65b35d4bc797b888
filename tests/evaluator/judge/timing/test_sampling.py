"""How paired samples become figures. The calls are made up here; the rules that they go through are the judge's."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from evaluator.config import SamplingPlan
from evaluator.errors import InfrastructureFault
from evaluator.judge.device.telemetry import NoSensors
from evaluator.judge.errors import ClocksDisagree, Violation
from evaluator.judge.link import TimedCall
from evaluator.judge.result import Outcome
from evaluator.judge.timing.figures import Measured
from evaluator.judge.timing.interference import InterferenceMonitor
from evaluator.judge.timing.sampling import Pair, Sampler
from evaluator.judge.timing.timed_call import Calibration, Calibrations, Caller
from evaluator.judge.timing.track import INFERENCE, INFERENCE_WARM, TRAINING, Track
from evaluator.protocol.control_page import CallMode, CallReport

_OVERHEAD_MS = 0.8
Participant = Callable[[int], tuple[float, float]]
"""From the number of a pair: what the call takes, and what its runner says that it takes."""


class Bench:
    """A sampler over calls whose times are given by ``candidate`` and ``baseline``."""

    def __init__(
        self,
        candidate: Participant,
        baseline: Participant = lambda _number: (1.0, 1.0),
        *,
        plan: SamplingPlan | None = None,
        noise_ms: float = 0.001,
        kind: str = "cuda",
        floor_ms: float = 0.0,
        later_overhead_ms: float = 0.0,
        candidate_waited_ms: float = 0.0,
        baseline_waited_ms: float = 0.0,
        seed: int = 11,
    ) -> None:
        self._generator = random.Random(seed)  # noqa: S311 - no secret
        self._sides = (candidate, baseline)
        self._noise_ms = noise_ms
        self._later_ms = later_overhead_ms
        self._candidate_waited_ms = candidate_waited_ms
        self._baseline_waited_ms = baseline_waited_ms
        self.pairs = 0
        device = SimpleNamespace(
            torch_device=SimpleNamespace(type=kind), asynchronous=kind == "cuda", sensors=NoSensors("made up")
        )
        calm = dict.fromkeys((CallMode.FORWARD, CallMode.BACKWARD), Calibration(_OVERHEAD_MS, 1.0, 0.1))
        calibrations = Calibrations(calm)
        caller = SimpleNamespace(
            device=device, calibrations=calibrations, latest_ms={}, baseline_ms={}, interference=InterferenceMonitor()
        )
        self.sampler = Sampler(
            cast(Caller, caller),
            plan or SamplingPlan(min_samples=20, max_samples=40, half_width=0.005),
            lambda _track: floor_ms,
            lambda _message, _share: None,
        )

    def measure(self, track: Track) -> Measured:
        """Sample a track to its end."""
        sampling = self.sampler.measure(track)
        try:
            number = next(sampling)
            while True:
                number = sampling.send(self._pair(number))
        except StopIteration as stop:
            measured: Measured = stop.value
            return measured

    def _pair(self, number: int) -> Pair:
        self.pairs += 1
        ours, theirs = (self._call(side) for side in self._sides)
        ours = replace(ours, waited_ms=self._candidate_waited_ms)
        theirs = replace(theirs, waited_ms=self._baseline_waited_ms)
        return Pair(ours, theirs, candidate_first=number % 2 == 0)

    def _call(self, side: Participant) -> TimedCall:
        takes_ms, says_ms = side(self.pairs)
        noise_ms = self._generator.gauss(0.0, self._noise_ms)
        outer_ms = takes_ms + _OVERHEAD_MS + self._later_ms + noise_ms
        return TimedCall(outer_ms, CallReport(says_ms, 0, 0, 0.0), precheck_ms=0.1)


def _exactly(milliseconds: float) -> Participant:
    return lambda _number: (milliseconds, milliseconds)


def test_an_honest_series_is_left_as_it_is_and_sampling_ends_when_the_interval_is_narrow() -> None:
    bench = Bench(_exactly(0.5))
    found = bench.measure(INFERENCE)
    assert not found.corrected
    assert (found.speedup, found.latency.candidate) == (2.0, 0.5)
    assert len(found.samples.order) == 20
    assert not any("wider" in note for note in found.notes)


def test_an_interval_of_any_width_is_told_in_a_few_digits() -> None:
    lengths = [1.0, 900.0, 0.5, 40.0, 3000.0, 0.7, 200.0, 1.2, 5000.0, 0.6]
    bench = Bench(
        lambda number: (lengths[number % 10], lengths[number % 10]), plan=SamplingPlan(min_samples=8, max_samples=8)
    )
    notes = bench.measure(INFERENCE).notes
    assert any("the interval is more than ± 1000 %" in note for note in notes), notes


def test_what_a_runner_leaves_out_is_put_back_after_a_second_look() -> None:
    bench = Bench(lambda _number: (1.0, 0.4))
    found = bench.measure(INFERENCE)
    assert found.corrected
    assert 0.97 < found.speedup <= 1.0
    assert any("were added" in note for note in found.notes)
    assert bench.pairs > 2 * 20, "a busy machine can do that once"


def test_a_baseline_that_waits_for_a_processor_in_each_call_makes_nobody_faster() -> None:
    plan = SamplingPlan.usual("cpu", "smoke")
    calm, busy = (
        Bench(_exactly(1.5), _exactly(16.0), plan=plan, kind="cpu", baseline_waited_ms=waited_ms).measure(INFERENCE)
        for waited_ms in (0.0, 14.5)
    )
    assert calm.interval.low > 9.0
    assert not calm.unsettled
    assert calm.details["held_up_ms"] == {"candidate": 0.0, "baseline": 0.0}
    assert busy.interval.low < 1.0 + 0.1
    assert busy.unsettled
    assert busy.details["held_up_ms"]["baseline"] == pytest.approx(14.5, abs=0.01)


@pytest.mark.parametrize("track", [INFERENCE, INFERENCE_WARM])
def test_the_second_look_has_enough_pairs_whatever_the_first_one_had_time_for(track: Track) -> None:
    late = [9.0, 8.0, 7.0]  # of a busy machine: what is beyond the runner's clock in the first pairs

    def side(number: int) -> tuple[float, float]:
        return (1.0 + late[number % 3] if number <= 5 else 1.0), 1.0

    plan = SamplingPlan(min_samples=20, max_samples=40, budget_s=0.0, warm_samples=3)
    bench = Bench(side, plan=plan)
    found = bench.measure(track)
    assert len(found.samples.order) == 20
    assert not found.corrected


@pytest.mark.parametrize("known", [True, False])
def test_a_first_pair_that_finds_the_allocators_empty_is_not_what_the_second_is_held_against(*, known: bool) -> None:
    bench = Bench(lambda number: (1.0, 9.0 if number == 1 else 1.0))
    if known:
        bench.sampler.caller.latest_ms[CallMode.FORWARD] = 1.0
        bench.sampler.caller.baseline_ms[CallMode.FORWARD] = [1.0]
    found = bench.measure(INFERENCE)
    assert found.latency.candidate == 1.0
    not_counted = bench.pairs - len(found.samples.order)
    assert not_counted == (1 if known else 2)


@pytest.mark.parametrize(("first_ms", "not_counted"), [(1.015, 0), (1.1, 1), (1.3, 1)])
def test_a_first_pair_that_is_like_the_calls_before_counts(first_ms: float, not_counted: int) -> None:
    bench = Bench(lambda number: (first_ms, first_ms) if number == 1 else (1.0, 1.0))
    bench.sampler.caller.latest_ms[CallMode.FORWARD] = 1.0
    bench.sampler.caller.baseline_ms[CallMode.FORWARD] = [1.0]
    found = bench.measure(INFERENCE)
    assert bench.pairs - len(found.samples.order) == not_counted
    assert (first_ms in found.samples.candidate_device_ms) == (not_counted == 0)
    assert found.samples.order[:3] in (
        ("candidate first", "baseline first", "candidate first"),
        ("baseline first", "candidate first", "baseline first"),
    )


def test_a_small_difference_between_two_noisy_processes_costs_nothing() -> None:
    found = Bench(lambda _number: (0.51, 0.5), noise_ms=0.1).measure(INFERENCE)
    assert not found.corrected


def test_what_is_little_more_than_two_processes_differ_is_put_back_in_part() -> None:
    found = Bench(lambda _number: (1.04, 1.0)).measure(INFERENCE)
    assert found.corrected
    assert 1.0 < found.latency.candidate < 1.04


def test_a_candidate_cannot_buy_room_with_noise_of_its_own() -> None:
    erratic = random.Random(3)  # noqa: S311 - no secret

    def side(_number: int) -> tuple[float, float]:
        return 1.0 + erratic.uniform(0, 0.5), 0.3

    assert Bench(side).measure(INFERENCE).speedup < 1.01


def test_what_does_not_show_in_the_figures_is_worth_no_second_look() -> None:
    bench = Bench(lambda _number: (300.1, 300.0), plan=SamplingPlan(min_samples=20, max_samples=40, half_width=0.005))
    found = bench.measure(INFERENCE)
    assert bench.pairs < 2 * 20
    assert found.latency.candidate >= 300.1, "it is put back all the same"


def test_a_claim_that_nothing_can_be_held_against_gains_nothing_on_a_busy_cpu() -> None:
    found = Bench(lambda _number: (1.0, 0.1), noise_ms=2.0, kind="cpu").measure(INFERENCE)
    assert found.corrected
    assert found.speedup < 1.5


@pytest.mark.parametrize("hidden", [0.0, 1.0])
def test_on_a_cpu_doubt_alone_is_looked_into_until_it_is_none_and_what_is_hidden_stays(hidden: float) -> None:
    """Calls of 0.2 ms with 0.1 ms of noise around them, as on two busy cores: five pairs, or ten, say little."""
    plan = SamplingPlan.usual("cpu", "smoke")
    believed, closer = 0, 0
    for seed in range(40):
        bench = Bench(
            lambda _number: (0.2 * (1 + hidden), 0.2), _exactly(0.2), plan=plan, noise_ms=0.1, kind="cpu", seed=seed
        )
        found = bench.measure(INFERENCE)
        believed += abs(found.speedup - 1.0) < 0.01
        assert found.speedup < 1.01
        closer += bench.pairs > 5 + 20
    if hidden:
        assert believed <= 1
    else:
        assert believed >= 39
        assert closer >= 1


def test_five_pairs_on_a_cpu_say_how_noisy_they_are_and_are_seldom_doubted_without_a_reason() -> None:
    """Calls of 0.7 ms with 0.065 ms of noise around them, as on two quiet cores. By the noise of those three of five
    alone that the figures rest on, it was one in twelve."""

    def varying(seed: str) -> Participant:
        generator = random.Random(seed)  # noqa: S311 - no secret

        def side(_number: int) -> tuple[float, float]:
            takes_ms = 0.7 * (1 + generator.gauss(0.0, 0.05))
            return takes_ms, takes_ms

        return side

    plan, closer = SamplingPlan.usual("cpu", "smoke"), 0
    for seed in range(200):
        sides = varying(f"ours {seed}"), varying(f"theirs {seed}")
        bench = Bench(*sides, plan=plan, noise_ms=0.065, kind="cpu", seed=seed)
        assert not bench.measure(INFERENCE).corrected
        closer += bench.pairs > 5
    assert closer <= 10


def test_clocks_that_disagree_in_a_burst_are_looked_at_again_as_long_as_there_are_looks() -> None:
    """Four milliseconds more around each call of the first look and of the one after it."""

    def side(number: int) -> tuple[float, float]:
        return 0.2 + (4.0 if number <= 5 + 10 else 0.0), 0.2

    bench = Bench(side, _exactly(0.2), plan=SamplingPlan.usual("cpu", "smoke"), noise_ms=0.01, kind="cpu")
    assert bench.measure(INFERENCE).speedup == 1.0
    for kind, lasting in (("cpu", 60), ("cuda", 18)):
        always = Bench(
            lambda number, last=lasting: (4.2 if number <= last else 0.2, 0.2),
            _exactly(0.2),
            plan=SamplingPlan(min_samples=8, max_samples=8),
            noise_ms=0.01,
            kind=kind,
        )
        with pytest.raises(ClocksDisagree):
            always.measure(INFERENCE)


def test_a_copy_on_a_busy_cpu_is_unsettled_or_covers_1() -> None:
    """Calls of 0.2 ms with a millisecond of noise around them: eight loops beside it on two cores."""
    unsettled = 0
    for seed in range(30):
        plan = SamplingPlan.usual("cpu", "smoke")
        found = Bench(_exactly(0.2), _exactly(0.2), plan=plan, noise_ms=1.0, kind="cpu", seed=seed).measure(INFERENCE)
        unsettled += bool(found.unsettled)
        assert found.unsettled or found.interval.low <= 1.0 <= found.interval.high
    assert unsettled >= 10


def test_doubt_makes_the_interval_wider_and_the_candidate_no_slower() -> None:
    """As much is left out as is put back; how much it is, is in doubt by a few standard errors."""
    found = Bench(lambda _number: (1.0, 0.7), noise_ms=0.2, kind="cpu").measure(INFERENCE)
    assert not found.unsettled
    assert found.corrected
    assert found.interval.low < 0.97 < 1.0 / 0.7 < found.interval.high
    assert 0.9 < found.speedup < 1.1


def test_what_leaves_out_more_than_it_reports_has_no_figure() -> None:
    found = Bench(lambda _number: (1.0, 0.4)).measure(INFERENCE)
    assert "may lie outside of what the candidate's process measured" in found.unsettled


@pytest.mark.parametrize(("claimed_ms", "again"), [(0.7, ["inference"]), (0.4, [])])
def test_only_what_has_a_figure_is_evaluated_once_more_at_once(claimed_ms: float, again: list[str]) -> None:
    """A service measures again later what has none: a machine that was too noisy still is."""
    found = Bench(lambda _number: (1.0, claimed_ms)).measure(INFERENCE)
    assert found.corrected
    outcome = Outcome()
    outcome.record(INFERENCE, found)
    assert outcome.corrected == again
    assert (outcome.figures.speedup is None) == (not again)


def test_an_interval_that_says_nothing_is_unsettled_after_the_closer_looks() -> None:
    generator = random.Random(5)  # noqa: S311 - no secret

    def side(_number: int) -> tuple[float, float]:
        takes_ms = generator.choice((0.2, 1.0, 5.0))
        return takes_ms, takes_ms

    plan = SamplingPlan.usual("cpu", "smoke")
    bench = Bench(side, side, plan=plan, noise_ms=0.001, kind="cpu")
    assert "anything from" in bench.measure(INFERENCE).unsettled
    assert bench.pairs >= 5 + 40
    plan = replace(plan, settles=False)
    briefly = Bench(side, side, plan=plan, noise_ms=0.001, kind="cpu")
    assert "anything from" in briefly.measure(INFERENCE).unsettled
    assert briefly.pairs == 5


def test_a_correction_is_not_looked_into_where_no_figure_has_to_settle() -> None:
    plan = replace(SamplingPlan.usual("cpu", "smoke"), settles=False)
    bench = Bench(lambda _number: (2.0, 1.2), plan=plan, kind="cpu")
    assert bench.measure(INFERENCE).corrected
    assert bench.pairs == 5


def test_clocks_that_disagree_are_looked_at_again_where_no_figure_has_to_settle() -> None:
    plan = replace(SamplingPlan.usual("cpu", "smoke"), settles=False)
    burst = Bench(
        lambda number: (0.2 + (4.0 if number <= 5 else 0.0), 0.2), _exactly(0.2), plan=plan, noise_ms=0.01, kind="cpu"
    )
    assert burst.measure(INFERENCE).speedup == 1.0
    assert burst.pairs > 5
    always = Bench(lambda _number: (4.2, 0.2), _exactly(0.2), plan=plan, noise_ms=0.01, kind="cpu")
    with pytest.raises(ClocksDisagree):
        always.measure(INFERENCE)


def test_what_is_left_out_of_most_calls_alone_is_put_back() -> None:
    found = Bench(lambda number: (1.0, 1.0 if number % 5 < 2 else 0.4)).measure(INFERENCE)
    assert found.corrected
    assert found.speedup <= 1.0


@pytest.mark.parametrize(
    ("track", "latency_ms", "least", "most"),
    [
        (INFERENCE, 0.015, 0.04, 0.09),
        (INFERENCE, 1.0, 0.004, 0.007),
        # A backward's kernels are asked for by another thread, so that processes differ by more.
        (TRAINING, 0.06, 0.04, 0.06),
        (TRAINING, 1.0, 0.005, 0.009),
    ],
)
def test_the_interval_has_room_for_what_two_processes_of_one_model_differ(
    track: Track, latency_ms: float, least: float, most: float
) -> None:
    found = Bench(_exactly(latency_ms), _exactly(latency_ms)).measure(track)
    assert least < found.interval.high - 1.0 < most
    assert least < 1.0 - found.interval.low < most
    assert not any("wider" in note for note in found.notes), "more samples would not make it narrower"


def test_more_than_the_slack_is_a_violation() -> None:
    with pytest.raises(ClocksDisagree, match="inner and outer clock disagree"):
        Bench(lambda _number: (4.0, 0.5)).measure(INFERENCE)


def test_who_waits_for_a_processor_between_the_clocks_is_not_turned_down_and_gains_nothing() -> None:
    def measured(waited_ms: float) -> Measured:
        return Bench(lambda _number: (10.0, 1.0), _exactly(1.0), kind="cpu", candidate_waited_ms=waited_ms).measure(
            INFERENCE
        )

    for waited_ms in (0.0, 5.0):
        with pytest.raises(ClocksDisagree):
            measured(waited_ms)
    found = measured(8.5)
    assert found.speedup < 0.2
    assert found.unsettled


def test_an_overhead_that_has_grown_for_both_sides_is_the_machines_and_nobodys_violation() -> None:
    with pytest.raises(InfrastructureFault, match="outside of what the runners measured"):
        Bench(_exactly(1.0), later_overhead_ms=3.0).measure(INFERENCE)


def test_a_baseline_that_has_become_slower_is_the_machines_fault() -> None:
    with pytest.raises(InfrastructureFault, match="before the candidate had the shared memory"):
        Bench(_exactly(1.0), _exactly(2.0)).measure(INFERENCE)


def test_a_call_below_the_floor_is_a_violation() -> None:
    with pytest.raises(Violation, match="faster than this device can move"):
        Bench(_exactly(0.1), floor_ms=0.2).measure(INFERENCE)


@pytest.mark.parametrize(
    ("side", "said"),
    [
        (lambda number: (1.0 + 0.3 * (number % 2), 1.0 + 0.3 * (number % 2)), "two modes"),
        (lambda number: (1.0 + 0.01 * number, 1.0 + 0.01 * number), "drifted by"),
        (lambda _number: (0.03, 0.03), "launch overhead dominates"),
    ],
)
def test_what_makes_a_number_doubtful_is_said(side: Participant, said: str) -> None:
    notes = Bench(side).measure(INFERENCE).notes
    assert any(said in note for note in notes), notes


def test_a_wide_interval_is_said_at_the_cap() -> None:
    erratic = random.Random(4)  # noqa: S311 - no secret

    def side(_number: int) -> tuple[float, float]:
        takes = erratic.uniform(0.5, 1.5)
        return takes, takes

    found = Bench(side).measure(INFERENCE)
    assert len(found.samples.order) == 40
    assert any("wider than the ± 0.5 % aimed at" in note for note in found.notes)


def test_the_warm_track_has_a_number_of_pairs_of_its_own() -> None:
    plan = SamplingPlan(min_samples=20, max_samples=40, warm_samples=7)
    found = Bench(_exactly(0.5), plan=plan).measure(INFERENCE_WARM)
    assert len(found.samples.order) == 7


def test_details_are_ready_for_json() -> None:
    import json

    details: dict[str, Any] = Bench(_exactly(0.5), kind="cpu").measure(INFERENCE).details
    assert json.loads(json.dumps(details, allow_nan=False)) == details
