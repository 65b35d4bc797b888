"""One evaluation from the judge's side: construct, verify, sample, conclude.

Every call, timed or not, goes through the same steps: fresh inputs, poisoned outputs, cold cache, release,
wait, commit to what was delivered, check the inputs, compare. There is no phase in which a candidate is
timed and not verified.
"""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import torch

from evaluator.config import EvalConfig
from evaluator.errors import InfrastructureFault, ProblemError
from evaluator.evaluation import (
    ErrorFigures,
    Gradients,
    Interval,
    Latency,
    SampleSeries,
    Verdict,
)
from evaluator.judge.device import Device
from evaluator.judge.inputs import InputSource, Variant, fill_random
from evaluator.judge.link import RunnerFailed, RunnerGone, RunnerLink, RunnerTimeout, TimedCall
from evaluator.judge.plan import MemoryPlan, plan_memory
from evaluator.judge.reference import Reference
from evaluator.judge.verify import CallFindings, Commitment, Verifier, Violation
from evaluator.memory import Block, create_block
from evaluator.problem import Problem
from evaluator.protocol import MAX_GRADIENTS, CallMode, Failure
from evaluator.sandbox.enclosure import Enclosure
from evaluator.statistics import median_error, median_ms, speedup, speedup_interval

__all__ = ["Outcome", "Session", "Side"]

_TRIALS: Final = (
    Variant.AS_WRITTEN,
    Variant.SIGNED,
    Variant.WIDE,
    Variant.SPECIAL,
    Variant.STRUCTURED,
)
_GRADIENT_TRIALS: Final = (Variant.SIGNED, Variant.AS_WRITTEN, Variant.WIDE)
_SAMPLES: Final = (Variant.AS_WRITTEN, Variant.SIGNED)
_CHECK_EVERY: Final = 5
_COMMAND_S: Final = 60.0
_SLACK_MS: Final = {"cpu": 1.0, "cuda": 0.1}
_SLACK_SHARE: Final = {"cpu": 0.1, "cuda": 0.02}
_NOISE_FACTOR: Final = 4.0
_FLOOR_MS: Final = {"cpu": 0.1, "cuda": 0.02}
_RAN_S: Final = 0.1
_WARM_UP_PAIRS: Final = 8
_SETTLED: Final = 0.2
_LAUNCH_BOUND_MS: Final = 0.05

_VERDICTS: Final = {
    Failure.LOAD: Verdict.LOAD_ERROR,
    Failure.CONSTRUCT: Verdict.CONSTRUCT_ERROR,
    Failure.RUNTIME: Verdict.RUNTIME_ERROR,
    Failure.OUT_OF_MEMORY: Verdict.OUT_OF_MEMORY,
    Failure.WRONG_SHAPE: Verdict.WRONG_SHAPE,
    Failure.WRONG_DTYPE: Verdict.WRONG_DTYPE,
}


@dataclass
class Outcome:
    """What the judge found. ``verdict`` of ``None``: the runner ended; its supervisor knows how."""

    verdict: Verdict | None = None
    message: str = ""
    stage: str = "loading"
    gradients: Gradients = Gradients.NOT_CHECKED
    speedup: float | None = None
    speedup_interval: Interval | None = None
    speedup_training: float | None = None
    speedup_training_interval: Interval | None = None
    latency_ms: Latency | None = None
    latency_training_ms: Latency | None = None
    errors: ErrorFigures = field(default_factory=ErrorFigures)
    notes: list[str] = field(default_factory=list)
    samples: dict[str, SampleSeries] = field(default_factory=dict)
    details: dict[str, Any] = field(default_factory=dict)
    peak_memory_bytes: int | None = None
    stage_s: dict[str, float] = field(default_factory=dict)


class _Concluded(Exception):
    """The verdict stands; ``Session.outcome`` has it."""


@dataclass
class Side:
    """Candidate or baseline: its link, and the processes that are frozen while the other is called."""

    name: str
    link: RunnerLink
    enclosure: Enclosure


class Session:
    """One evaluation. ``run`` never raises for what a candidate does; ``close`` gives the memory back."""

    def __init__(
        self,
        problem: Problem,
        config: EvalConfig,
        device: Device,
        candidate: Side,
        baseline: Side,
        progress: Callable[[str, str, float | None], None],
    ) -> None:
        self._problem = problem
        self._config = config
        self._device = device
        self._candidate = candidate
        self._baseline = baseline
        self._progress = progress
        self._blocks: dict[str, Block] = {}
        self._deadline = time.monotonic() + config.limits.total_s
        self._used_before = device.total_bytes() - device.free_bytes()
        self._peak_bytes = 0
        self._runner_peak = 0
        self._gradients_required = (
            problem.gradient_policy == "require" if config.require_gradients is None else config.require_gradients
        )
        self._training = True
        self._max_abs: float | None = None
        self._max_rel: float | None = None
        self._reference_max_rel: float | None = None
        self.outcome = Outcome()

    def run(self) -> Outcome:
        """Carry the evaluation out. Raises ``DoesNotFit`` and ``ProblemError``; both are not the candidate's."""
        try:
            with self._stage("preparing"):
                self._prepare()
            self._run_stages()
        except _Concluded:
            pass
        except RunnerFailed as error:
            self._note_verdict(_VERDICTS.get(error.failure, Verdict.RUNTIME_ERROR), error.text)
        except RunnerTimeout as error:
            self._note_verdict(Verdict.TIMEOUT, str(error))
        except Violation as error:
            self._note_verdict(Verdict.REJECTED, str(error))
        except RunnerGone:
            self.outcome.verdict = None
        self._finish()
        return self.outcome

    def close(self) -> None:
        """Free everything. Call it when the runners are gone: they map the same memory."""
        for block in self._blocks.values():
            block.close()
        self._blocks = {}
        self._candidate.link.close()
        self._baseline.link.close()
        self._device.release_cache()

    def _prepare(self) -> None:
        """Find out whether it fits, then allocate. Nothing is asked of the candidate before this is done."""
        problem, config, device = self._problem, self._config, self._device
        self._reference = Reference(problem, config.size, config.precision, device)
        signature = self._reference.signature
        self._training = problem.gradient_policy != "none" and signature.differentiable
        if len(signature.float_inputs) + len(signature.weights) >= MAX_GRADIENTS:
            raise ProblemError(f"more than {MAX_GRADIENTS - 1} gradients cannot be compared")
        plan = plan_memory(
            signature,
            device,
            sliced=problem.row_independent,
            gradients=self._training,
            limit=config.limits.device_memory_bytes,
        )
        self._plan: MemoryPlan = plan
        for name, layout in plan.layouts.items():
            self._blocks[name] = create_block(layout, device.torch_device)
        self._source = InputSource(
            self._reference.get_inputs, device.torch_device, variants=problem.input_domain == "real"
        )
        self._verifier = Verifier(
            self._reference,
            self._blocks,
            problem.tolerance(config.precision),
            device.generator,
            device.slice_elements if problem.row_independent else None,
        )
        self._output_names = {tally.name for tally in self._verifier.output_tallies()}
        self.outcome.gradients = Gradients.NOT_CHECKED if self._training else Gradients.NOT_APPLICABLE
        if problem.gradient_policy == "none":
            self.outcome.gradients = Gradients.NOT_CHECKED
        self.outcome.details["memory_plan"] = plan.describe()

    def _run_stages(self) -> None:
        limits, sampling = self._config.limits, self._config.sampling
        with self._stage("loading"):
            self._candidate.link.await_ready(limits.load_s + limits.build_s, "importing the module")
            with self._ours("the reference does not import"):
                self._baseline.link.await_ready(limits.load_s, "importing the reference")
        with self._stage("constructing"):
            self._construct()
        self._candidate.enclosure.freeze()
        self._baseline.enclosure.freeze()
        with self._stage("verifying"):
            self._verify(sampling.trials, sampling.gradient_trials)
        with self._stage("sampling"):
            self._sample_track(CallMode.FORWARD)
            if self.outcome.gradients is Gradients.MATCH:
                self._sample_track(CallMode.BACKWARD)
        self._note_verdict(Verdict.PASSED, "")

    def _construct(self) -> None:
        seed = secrets.randbits(63)
        self._reference.construct(seed)
        for target, value in zip(self._blocks["weights"].tensors, self._reference.weight_values(), strict=True):
            target.copy_(value)
        self._device.synchronize()
        message = {
            "seed": seed,
            "device": str(self._device.torch_device),
            "precision": self._config.precision,
            "threads": self._device.threads,
            "inputs": [value if isinstance(value, dict) else None for value in self._reference.signature.inputs],
            "weight_names": [name for name, _ in self._reference.signature.weights],
        }
        self._weight_names = message["weight_names"]
        construct_s = self._config.limits.construct_s + self._config.limits.build_s
        self._candidate.link.construct(message, self._blocks, construct_s)
        with self._ours("the reference does not construct"):
            self._baseline.link.construct(message, self._blocks, self._config.limits.construct_s)

    def _verify(self, trials: int, gradient_trials: int) -> None:
        """Forward trials, then gradient trials; sets the gradient result, concludes where something is wrong."""
        loaded = conclusive = False
        variants = list(self._cycle(_TRIALS, trials))
        position = 0
        while position < len(variants):
            variant = variants[position]
            self._report("verifying", f"forward, inputs {variant.value}", position / (trials + gradient_trials))
            findings = self._verified(CallMode.FORWARD, variant, first=position == 0)
            differing = self._candidate.link.weight_report().differing
            if findings.verdict is Verdict.WRONG_OUTPUT and differing and not loaded:
                # Constructed from another stream of random numbers than the reference, perhaps: try its weights.
                self._command(self._candidate, {"op": "load_weights", "weight_names": self._weight_names})
                self.outcome.notes.append(
                    f"{differing} weights differed from the reference's after constructing under the same seed; "
                    "the reference's were loaded"
                )
                loaded, position = True, 0
                continue
            self._conclude_if_wrong(findings)
            conclusive = conclusive or not findings.inconclusive
            # The baseline is called as often as the candidate: what settles in the first calls settles on both sides.
            self._baseline_call(CallMode.FORWARD, variant)
            position += 1
        if not conclusive:
            raise ProblemError("the reference is not finite on any of its inputs: nothing can be compared")
        if self._training:
            self._verify_gradients(gradient_trials, trials)

    def _verify_gradients(self, gradient_trials: int, trials: int) -> None:
        for number, variant in enumerate(self._cycle(_GRADIENT_TRIALS, gradient_trials)):
            share = (trials + number) / (trials + gradient_trials)
            self._report("verifying", f"gradients, inputs {variant.value}", share)
            findings = self._verified(CallMode.BACKWARD, variant)
            if not findings.inconclusive:
                self.outcome.gradients = findings.gradients
            self._conclude_if_wrong(findings)
            self._note_once(findings.gradient_notes)
            self._baseline_call(CallMode.BACKWARD, variant)
            if findings.gradients is Gradients.MISSING:
                if self._gradients_required:
                    self._conclude(
                        Verdict.WRONG_GRADIENT,
                        "gradients are required, and the output carries no graph: nothing flows back to the inputs",
                    )
                return
        if self._gradients_required and self.outcome.gradients is not Gradients.MATCH:
            self._conclude(
                Verdict.WRONG_GRADIENT, "gradients are required, and not all of them could be compared: see the notes"
            )

    def _sample_track(self, mode: CallMode) -> None:
        """Paired samples until the interval is narrow enough or a cap is reached; records the track's figures."""
        sampling = self._config.sampling
        track = "inference" if mode is CallMode.FORWARD else "training"
        self._release_both()
        candidate: list[TimedCall] = []
        baseline: list[TimedCall] = []
        order: list[str] = []
        begin = time.monotonic()
        interval: Interval | None = None
        self._warm_up(mode)
        while len(candidate) < sampling.max_samples:
            number = len(candidate)
            variant = _SAMPLES[number // 2 % len(_SAMPLES)]
            ours, theirs = self._sample_pair(
                mode, variant if self._source.available(variant) else Variant.AS_WRITTEN, number
            )
            candidate.append(ours)
            baseline.append(theirs)
            order.append("candidate first" if number % 2 == 0 else "baseline first")
            over_budget = time.monotonic() - begin > sampling.budget_s
            if over_budget and len(candidate) >= sampling.least_samples:
                break
            if len(candidate) >= sampling.min_samples and len(candidate) % _CHECK_EVERY == 0:
                interval = speedup_interval(_device(baseline), _device(candidate))
                value = speedup(_device(baseline), _device(candidate))
                half_width = (interval.high - interval.low) / 2 / value
                self._report(
                    "sampling", f"{track}: {value:.3f}x ± {100 * half_width:.1f} %", number / sampling.max_samples
                )
                if half_width <= sampling.half_width:
                    break
        self._record_track(track, candidate, baseline, order)

    def _warm_up(self, mode: CallMode) -> None:
        """Pairs that are not counted, until both sides take about as long as in the pair before: allocators,
        autotuners and clocks settle."""
        before: tuple[float, float] | None = None
        for number in range(_WARM_UP_PAIRS):
            now = tuple(call.report.device_ms for call in self._sample_pair(mode, Variant.AS_WRITTEN, number))
            if before is not None and all(
                abs(new - old) <= _SETTLED * old for new, old in zip(now, before, strict=True)
            ):
                return
            before = (now[0], now[1])

    def _sample_pair(self, mode: CallMode, variant: Variant, number: int) -> tuple[TimedCall, TimedCall]:
        """One call of each side on inputs of the same kind; ABBA: who is first alternates."""
        if number % 2:
            theirs = self._baseline_call(mode, variant)
            return self._sample(mode, variant), theirs
        ours = self._sample(mode, variant)
        return ours, self._baseline_call(mode, variant)

    def _sample(self, mode: CallMode, variant: Variant) -> TimedCall:
        call, findings = self._call_candidate(mode, variant)
        self._conclude_if_wrong(findings)
        if mode is CallMode.BACKWARD and findings.gradients is not Gradients.MATCH and not findings.inconclusive:
            self._conclude(Verdict.WRONG_GRADIENT, f"gradients were {findings.gradients} in a timed call, not before")
        return call

    def _baseline_call(self, mode: CallMode, variant: Variant) -> TimedCall:
        with self._ours("the reference fails"):
            call, _ = self._call(self._baseline, mode, variant, self._config.limits.call_s)
        self._measure_memory()
        return call

    def _verified(self, mode: CallMode, variant: Variant, *, first: bool = False) -> CallFindings:
        return self._call_candidate(mode, variant, first=first)[1]

    def _call_candidate(
        self, mode: CallMode, variant: Variant, *, first: bool = False
    ) -> tuple[TimedCall, CallFindings]:
        if time.monotonic() > self._deadline:
            raise RunnerTimeout(f"the evaluation took longer than {self._config.limits.total_s:.0f} s in all")
        # Some candidates build their extension in the first call.
        timeout_s = self._config.limits.call_s + (self._config.limits.build_s if first else 0.0)
        call, commitment = self._call(self._candidate, mode, variant, timeout_s)
        if call.report.device_ms <= 0:
            raise Violation("the runner reported a call that took no time")
        if mode is CallMode.FORWARD:
            findings = self._verifier.verify_outputs(commitment, variant)
        else:
            counterparts = self._candidate.link.weight_report().counterparts
            findings = self._verifier.verify_gradients(commitment, call.report, counterparts, variant)
        self._measure_memory()
        self._runner_peak = max(self._runner_peak, call.report.peak_bytes)
        self._note_errors(findings)
        return call, findings

    def _call(self, side: Side, mode: CallMode, variant: Variant, timeout_s: float) -> tuple[TimedCall, Commitment]:
        """One call of either side, and fingerprints of what it was given and of what it delivered.

        Everything here is the same for both sides, needed or not. Leaving the fingerprints out for the
        baseline alone made it 8 % slower on an H200: what a device did last decides how the next call finds it.
        The side's processes run only from the release to "done"; otherwise they are stopped.
        """
        self._take_memory(side, self._baseline if side is self._candidate else self._candidate)
        self._source.fill(self._blocks["inputs"].tensors, variant, avoid_zero=mode is CallMode.BACKWARD)
        given, delivered = ["inputs"], ["outputs"]
        if mode is CallMode.BACKWARD:
            for tensor in self._blocks["upstream"].tensors:
                fill_random(tensor)
            given.append("upstream")
            delivered += ["input_gradients", "weight_gradients"]
        for name in delivered:
            # A pattern that nobody can guess: what a candidate does not write is never right by chance.
            self._blocks[name].memory.view(torch.int64).fill_(secrets.randbits(63))
        commitment = self._verifier.commit(given)
        self._device.flush_cache()
        self._device.synchronize()
        with self._awake(side):
            call = side.link.call(mode, timeout_s)
        begin = time.perf_counter()
        commitment |= self._verifier.commit(delivered)
        self._device.synchronize()
        return replace(call, commit_ms=1000 * (time.perf_counter() - begin)), commitment

    def _command(self, side: Side, message: dict[str, Any]) -> None:
        with self._awake(side):
            side.link.command(message, _COMMAND_S)

    def _record_track(
        self, track: str, candidate: list[TimedCall], baseline: list[TimedCall], order: list[str]
    ) -> None:
        series = SampleSeries(
            tuple(_device(candidate)),
            tuple(_device(baseline)),
            tuple(_outer(candidate)),
            tuple(_outer(baseline)),
            tuple(order),
        )
        self._check_clocks(track, series)
        self._check_idle(candidate, baseline)
        credited = _credited(series, _FLOOR_MS[self._device.torch_device.type])
        latency = Latency(
            median_ms(credited),
            median_ms(series.baseline_device_ms),
            median_ms(series.candidate_outer_ms),
            median_ms(series.baseline_outer_ms),
        )
        interval = speedup_interval(series.baseline_device_ms, credited)
        value = speedup(series.baseline_device_ms, credited)
        half_width = (interval.high - interval.low) / 2 / value
        outcome = self.outcome
        outcome.samples[track] = series
        if half_width > self._config.sampling.half_width:
            outcome.notes.append(
                f"{track}: the interval is ± {100 * half_width:.1f} %, wider than the ± "
                f"{100 * self._config.sampling.half_width:g} % aimed at, after {len(candidate)} pairs of samples"
            )
        if latency.candidate < _LAUNCH_BOUND_MS:
            outcome.notes.append(f"{track}: below {1000 * _LAUNCH_BOUND_MS:.0f} µs, launch overhead dominates")
        if track == "inference":
            outcome.speedup, outcome.speedup_interval, outcome.latency_ms = value, interval, latency
        else:
            outcome.speedup_training, outcome.speedup_training_interval = value, interval
            outcome.latency_training_ms = latency

    def _check_clocks(self, track: str, series: SampleSeries) -> None:
        """The runner's clock against the judge's: what lies between them must be what it is for the baseline.

        The comparison allows for a stated slack and for the noise of both medians, so that a busy machine
        fails nobody; what a runner hides below that it gains nothing from (see ``_credited``).
        """
        ours = _differences(series.candidate_outer_ms, series.candidate_device_ms)
        theirs = _differences(series.baseline_outer_ms, series.baseline_device_ms)
        slack = self._slack_ms(series)
        noise = _NOISE_FACTOR * (median_error(ours) + median_error(theirs))
        self.outcome.details.setdefault("clock_overhead_ms", {})[track] = {
            "candidate": median_ms(ours),
            "baseline": median_ms(theirs),
            "slack": slack,
            "noise": noise,
        }
        if median_ms(ours) - median_ms(theirs) > slack + noise:
            raise Violation(
                f"inner and outer clock disagree: {median_ms(ours):.3f} ms of each call lie outside of what the runner "
                f"measured, {median_ms(theirs):.3f} ms for the baseline, and {slack + noise:.3f} ms more are allowed"
            )

    def _slack_ms(self, series: SampleSeries) -> float:
        kind = self._device.torch_device.type
        longest = max(median_ms(series.baseline_outer_ms), median_ms(series.candidate_device_ms))
        return _SLACK_MS[kind] + _SLACK_SHARE[kind] * longest

    def _check_idle(self, candidate: list[TimedCall], baseline: list[TimedCall]) -> None:
        """Taking the fingerprints after "done" must not take longer than after the baseline's calls: work that
        is still going on then was not in the clock."""
        ours, theirs = [call.commit_ms for call in candidate], [call.commit_ms for call in baseline]
        kind = self._device.torch_device.type
        allowed = (
            _SLACK_MS[kind]
            + _SLACK_SHARE[kind] * median_ms(_outer(baseline))
            + _NOISE_FACTOR * (median_error(ours) + median_error(theirs))
        )
        if median_ms(ours) - median_ms(theirs) > allowed:
            raise Violation(
                f"the device was still busy after the candidate had said that it was done: {median_ms(ours):.3f} ms "
                f"until its output could be read, {median_ms(theirs):.3f} ms after the baseline, {allowed:.3f} ms more "
                "are allowed"
            )

    def _take_memory(self, side: Side, other: Side) -> None:
        """Where memory is lean: have ``other`` give its allocator's memory back, and ``side`` take its own."""
        if self._plan.lean:
            for each, operation in ((other, "release_memory"), (side, "reserve_memory")):
                with self._blamed(each):
                    self._command(each, {"op": operation})

    def _release_both(self) -> None:
        for side in (self._baseline, self._candidate):
            with self._blamed(side):
                self._command(side, {"op": "release_memory"})

    def _blamed(self, side: Side) -> contextlib.AbstractContextManager[None]:
        return self._ours("the reference fails") if side is self._baseline else contextlib.nullcontext()

    def _measure_memory(self) -> None:
        used = self._device.total_bytes() - self._device.free_bytes()
        # A CPU's memory is everybody's; a CUDA device is the judge's and its runners'.
        foreign = self._used_before if self._device.torch_device.type == "cpu" else 0
        self._peak_bytes = max(self._peak_bytes, used - foreign)

    def _note_errors(self, findings: CallFindings) -> None:
        for tally in findings.tallies:
            if tally.total and tally.finite:
                if tally.name in self._output_names:
                    self._max_abs = max(self._max_abs or 0.0, tally.max_abs)
                    self._max_rel = max(self._max_rel or 0.0, tally.max_rel)
                    self._reference_max_rel = max(self._reference_max_rel or 0.0, tally.reference_max_rel)
                else:
                    worst = self.outcome.details.setdefault("gradient_max_abs", {})
                    worst[tally.name] = max(worst.get(tally.name, 0.0), tally.max_abs)
                if tally.widened > 1.0:
                    widened = self.outcome.details.setdefault("tolerance_widened", {})
                    widened[tally.name] = max(widened.get(tally.name, 1.0), tally.widened)

    def _conclude_if_wrong(self, findings: CallFindings) -> None:
        if findings.verdict is not None and not findings.inconclusive:
            self.outcome.gradients = (
                Gradients.MISMATCH if findings.verdict is Verdict.WRONG_GRADIENT else self.outcome.gradients
            )
            self._conclude(findings.verdict, findings.message)

    def _conclude(self, verdict: Verdict, message: str) -> None:
        self._note_verdict(verdict, message)
        raise _Concluded

    def _note_verdict(self, verdict: Verdict, message: str) -> None:
        self.outcome.verdict, self.outcome.message = verdict, message

    def _note_once(self, notes: Sequence[str]) -> None:
        self.outcome.notes.extend(note for note in notes if note not in self.outcome.notes)

    def _finish(self) -> None:
        outcome = self.outcome
        outcome.errors = ErrorFigures(self._max_abs, self._max_rel, self._reference_max_rel)
        outcome.peak_memory_bytes = self._peak_bytes or None
        outcome.details["memory_before_bytes"] = self._used_before
        outcome.details["candidate_allocator_peak_bytes"] = self._runner_peak
        if outcome.verdict is not Verdict.PASSED:
            outcome.speedup = outcome.speedup_interval = None
            outcome.speedup_training = outcome.speedup_training_interval = None
            outcome.latency_ms = outcome.latency_training_ms = None

    def _cycle(self, variants: Sequence[Variant], count: int) -> Iterator[Variant]:
        usable = [variant for variant in variants if self._source.available(variant)]
        return (usable[number % len(usable)] for number in range(count))

    def _report(self, stage: str, message: str, share: float | None = None) -> None:
        self._progress(stage, message, share)

    @contextlib.contextmanager
    def _stage(self, name: str) -> Iterator[None]:
        self.outcome.stage = name
        self._report(name, "")
        begin = time.monotonic()
        try:
            yield
        finally:
            self.outcome.stage_s[name] = time.monotonic() - begin

    @contextlib.contextmanager
    def _ours(self, what: str) -> Iterator[None]:
        """Whatever the baseline's runner does wrong is not the candidate's fault."""
        try:
            yield
        except (RunnerFailed, RunnerTimeout) as error:
            raise ProblemError(f"{what}: {error}") from error
        except RunnerGone as error:
            raise InfrastructureFault(f"{what}: its process ended") from error

    @contextlib.contextmanager
    def _awake(self, side: Side) -> Iterator[None]:
        """Let the processes of ``side`` run, and stop them again at the end."""
        side.enclosure.thaw()
        if side.enclosure.ran_while_stopped_s > _RAN_S:
            raise Violation(
                f"{side.name}'s processes used {side.enclosure.ran_while_stopped_s:.2f} s of processor time while "
                "they were stopped: they wake each other"
            )
        try:
            yield
        finally:
            # Stopped, it cannot slow down what it is compared with, nor write late.
            side.enclosure.freeze()


def _device(calls: Sequence[TimedCall]) -> list[float]:
    return [call.report.device_ms for call in calls]


def _outer(calls: Sequence[TimedCall]) -> list[float]:
    return [call.outer_ms for call in calls]


def _differences(outer: Sequence[float], inner: Sequence[float]) -> list[float]:
    return [a - b for a, b in zip(outer, inner, strict=True)]


def _credited(series: SampleSeries, floor_ms: float) -> list[float]:
    """The candidate's device times, moved up where the judge's clock says that something is left out of them.

    The median outer time minus the baseline's overhead should be the median device time. Where it is above
    that by more than four standard errors of the overhead, or by ``floor_ms`` and by as much again as the
    runner says, the whole difference is put back, and those standard errors with it: doubt is at the cost of who
    left it. An honest series is left as it is, so it stays as steady as the device's own clock.
    """
    overheads = _differences(series.baseline_outer_ms, series.baseline_device_ms)
    claimed = median_ms(series.candidate_device_ms)
    missing = median_ms(series.candidate_outer_ms) - median_ms(overheads) - claimed
    doubt = _NOISE_FACTOR * median_error(overheads)
    if missing <= min(doubt, max(claimed, floor_ms)):
        return list(series.candidate_device_ms)
    return [sample + missing + doubt for sample in series.candidate_device_ms]
