"""One evaluation from the judge's side: construct, verify, sample, conclude.

Every call, timed or not, goes through the same steps: fresh inputs, poisoned outputs, cold cache, release,
wait, commit to what was delivered, check the inputs, compare. There is no phase in which a candidate is
timed and not verified.
"""

from __future__ import annotations

import contextlib
import math
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import torch

from evaluator.config import EvalConfig
from evaluator.errors import DoesNotFit, InfrastructureFault, ProblemError
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
from evaluator.judge.verify import CallFindings, ClocksDisagree, Commitment, Verifier, Violation
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
_CHECK_EVERY: Final = 5
_TRACKS: Final = {CallMode.FORWARD: "inference", CallMode.BACKWARD: "training"}
_COMMAND_S: Final = 60.0
_CLEAN_S: Final = 10.0
_CLEAN_POLL_S: Final = 0.02
_LEFT_BYTES: Final = 2**30
_CALM_CALLS: Final = 3
_KEPT_BYTES: Final = 2**30
_MOST_DECOYS: Final = 2
_MOST_DISTURBED: Final = 10
_MOST_DISTURBED_SHARE: Final = 0.3
_SLOWER_BASELINE: Final = 1.25
_DISTURBED_SHARE: Final = 1.05
_DISTURBED_MS: Final = 0.03
_SLACK_MS: Final = 1.0
_SLACK_SHARE: Final = 0.1
_CALM_SLACK_MS: Final = 0.1
_CALM_SLACK_SHARE: Final = 0.02
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


@dataclass
class _Inputs:
    """What decides the inputs of one call; ``kept`` are the values themselves, where they are small enough."""

    variant: Variant
    seed: int
    avoid_zero: bool
    kept: list[torch.Tensor] | None = None


class _NotRepeatable(Exception):
    """The same seed did not make the same inputs."""


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
        self._foreign_before = device.foreign_bytes()
        self._peak_bytes = 0
        self._runner_peak = 0
        self._gradients_required = (
            problem.gradient_policy == "require" if config.require_gradients is None else config.require_gradients
        )
        self._training = True
        self._calm_overhead_ms: dict[str, float] = {}
        self._calm_baseline_ms: dict[str, float] = {}
        self._calm_prelude_ms: dict[str, float] = {}
        self._preludes = self._disturbed = 0
        self._kept_bytes: float = _KEPT_BYTES
        self._max_abs: float | None = None
        self._max_rel: float | None = None
        self._reference_max_rel: float | None = None
        self.outcome = Outcome()

    def run(self) -> Outcome:
        """Carry the evaluation out. Raises ``DoesNotFit`` and ``ProblemError``; both are not the candidate's."""
        try:
            # Until everything is allocated, the candidate must not take what it needs, or be in the figures.
            self._candidate.enclosure.freeze()
            with self._stage("preparing"):
                self._prepare()
            self._candidate.enclosure.thaw()
            self._run_stages()
        except _Concluded:
            pass
        except RunnerFailed as error:
            self._note_verdict(_VERDICTS.get(error.failure, Verdict.RUNTIME_ERROR), error.text)
        except RunnerTimeout as error:
            self._note_verdict(Verdict.TIMEOUT, str(error))
        except Violation as error:
            self._note_verdict(Verdict.REJECTED, str(error))
        except torch.OutOfMemoryError as error:
            self._blame_for_memory(str(error))
        except RunnerGone:
            self.outcome.verdict = None
        self._finish()
        return self.outcome

    def close(self) -> str:
        """Free everything, and say what is left behind all the same. Call it when the runners are gone: they map
        the same memory."""
        for block in self._blocks.values():
            block.close()
        self._blocks = {}
        self._candidate.link.close()
        self._baseline.link.close()
        self._device.release_cache()
        return self._left_behind()

    def _left_behind(self) -> str:
        """What is not as it was before, although the runners are gone; empty where nothing is."""
        if not self._device.outlives_processes:
            return ""
        deadline = time.monotonic() + _CLEAN_S
        while True:
            used = self._device.foreign_bytes() - self._foreign_before
            if used <= _LEFT_BYTES and self._device.is_quiet():
                return ""
            if time.monotonic() > deadline:
                return f"{used / 2**30:.1f} GiB of device memory more than before are in use, or the device is busy"
            time.sleep(_CLEAN_POLL_S)

    def _prepare(self) -> None:
        """Find out whether it fits, then allocate. Nothing is asked of the candidate before this is done."""
        problem, config, device = self._problem, self._config, self._device
        self._require_quiet()
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
        self._sampled = Variant.MIXED if self._source.available(Variant.MIXED) else Variant.AS_WRITTEN
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

    def _require_quiet(self) -> None:
        """Nobody else may be at work on the device, or no figure of this evaluation would be worth anything."""
        deadline = time.monotonic() + _CLEAN_S
        while not self._device.is_quiet():
            if time.monotonic() > deadline:
                raise InfrastructureFault("the device is busy with something that is not part of this evaluation")
            time.sleep(_CLEAN_POLL_S)

    def _run_stages(self) -> None:
        limits, sampling = self._config.limits, self._config.sampling
        with self._stage("loading"):
            self._candidate.link.await_ready(limits.load_s + limits.build_s, "importing the module")
            with self._ours("the reference does not import"):
                self._baseline.link.await_ready(limits.load_s, "importing the reference")
        self._candidate.enclosure.freeze()
        with self._stage("constructing"):
            self._construct()
        self._candidate.enclosure.freeze()
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
        # The baseline first: what the candidate does with the shared memory does not exist yet.
        with self._ours("the reference does not construct"):
            self._baseline.link.construct(message, self._blocks, self._config.limits.construct_s)
        self._baseline.enclosure.freeze()
        self._calibrate()
        self._candidate.enclosure.thaw()
        construct_s = self._config.limits.construct_s + self._config.limits.build_s
        self._candidate.link.construct(message, self._blocks, construct_s)

    def _calibrate(self) -> None:
        """What lies between the two clocks while only the baseline has the shared memory."""
        for mode in (CallMode.FORWARD, CallMode.BACKWARD) if self._training else (CallMode.FORWARD,):
            self._baseline_call(mode, Variant.AS_WRITTEN)
            calls = [self._baseline_call(mode, Variant.AS_WRITTEN) for _ in range(_CALM_CALLS)]
            self._calm_overhead_ms[_TRACKS[mode]] = max(_differences(_outer(calls), _device(calls)))
            self._calm_baseline_ms[_TRACKS[mode]] = median_ms(_device(calls))
            if self._device.outlives_processes:
                self._calm_prelude_ms[_TRACKS[mode]] = median_ms([call.prelude_ms for call in calls])

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
        """Sample a track; once more where the clocks disagree, since a busy machine can do that, too."""
        try:
            self._sample_once(mode)
        except ClocksDisagree:
            self._sample_once(mode)

    def _sample_once(self, mode: CallMode) -> None:
        """Paired samples until the interval is narrow enough or a cap is reached; records the track's figures."""
        sampling = self._config.sampling
        track = _TRACKS[mode]
        self._release_both()
        candidate: list[TimedCall] = []
        baseline: list[TimedCall] = []
        order: list[str] = []
        begin = time.monotonic()
        interval: Interval | None = None
        self._warm_up(mode)
        while len(candidate) < sampling.max_samples:
            number = len(candidate)
            ours, theirs = self._sample_pair(mode, self._sampled, number)
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
            now = tuple(call.report.device_ms for call in self._sample_pair(mode, self._sampled, number))
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
        """One call of either side, and what the judge keeps of it."""
        try:
            return self._call_once(side, mode, variant, timeout_s)
        except _NotRepeatable:
            # get_inputs has another source of randomness than torch: from now on its inputs are kept.
            self._kept_bytes = math.inf
            return self._call_once(side, mode, variant, timeout_s)

    def _call_once(
        self, side: Side, mode: CallMode, variant: Variant, timeout_s: float
    ) -> tuple[TimedCall, Commitment]:
        """One call of either side, and fingerprints of what it was given and of what it delivered.

        Everything here is the same for both sides, needed or not. Leaving the fingerprints out for the
        baseline alone made it 8 % slower on an H200: what a device did last decides how the next call finds it.
        The side's processes run only from the release to "done"; otherwise they are stopped.
        """
        self._take_memory(side, self._baseline if side is self._candidate else self._candidate)
        delivered = ["outputs"]
        if mode is CallMode.BACKWARD:
            delivered += ["input_gradients", "weight_gradients"]
        commitment = self._verifier.prepare(["inputs", *delivered])
        inputs = _Inputs(variant, secrets.randbits(63), avoid_zero=mode is CallMode.BACKWARD)
        given = self._make_inputs(inputs)
        if self._blocks["inputs"].layout.size_bytes <= self._kept_bytes:
            inputs.kept = given
        self._verifier.commit(commitment, "inputs", given)
        if mode is CallMode.BACKWARD:
            upstream = self._blocks["upstream"].tensors
            for tensor in upstream:
                fill_random(tensor)
            self._verifier.commit(commitment, "upstream", upstream)
        for name in delivered:
            # A pattern that nobody can guess: what a candidate does not write is never right by chance.
            self._poison(name)
        prelude_ms = self._await_calm(_TRACKS[mode])

        def show() -> None:
            for target, tensor in zip(self._blocks["inputs"].tensors, given, strict=True):
                target.copy_(tensor)
            self._device.flush_cache()
            self._device.synchronize()

        def take_back() -> None:
            # What is not computed by now never can be: the inputs are gone.
            self._verifier.pick(commitment, ["inputs"])
            self._poison("inputs")
            self._device.synchronize()

        def settle() -> None:
            self._verifier.pick(commitment, delivered)
            self._device.synchronize()

        try:
            if self._device.outlives_processes:
                # Waking takes a millisecond, so it comes first; the inputs come within the clock. On a device that
                # works for one process at a time, nothing can be gained by beginning while they are written.
                self._wake(side)
                side.link.call(CallMode.AWAKE, self._config.limits.call_s)
                call = side.link.call(mode, timeout_s, before=show, settle=take_back)
            else:
                # Other processors could begin while the inputs are written, so that comes before anybody is woken.
                show()
                call = side.link.call(mode, timeout_s, wake=lambda: self._wake(side), settle=take_back)
            if inputs.kept is None:
                given.clear()
            delivery = side.link.call(CallMode.DELIVER, self._config.limits.call_s, settle=settle)
        finally:
            side.enclosure.freeze()
        self._restore_inputs(commitment, inputs)
        for name in delivered:
            self._verifier.commit(commitment, name, self._blocks[name].tensors)
        self._device.synchronize()
        return replace(call, delivery_ms=delivery.outer_ms, prelude_ms=prelude_ms), commitment

    def _poison(self, name: str) -> None:
        self._blocks[name].memory.view(torch.int64).fill_(secrets.randbits(63))

    def _await_calm(self, track: str) -> float:
        """With every process stopped, write to all that the runners share and work for a moment.

        Returns how long that took, in milliseconds. It is the same in each call, so work that the candidate
        has left on the device, or set up to begin when something is written, shows as a delay.
        """
        if not self._device.outlives_processes:
            return 0.0
        calm_ms = self._calm_prelude_ms.get(track)
        while True:
            for _ in range(1 + secrets.randbelow(_MOST_DECOYS)):
                self._device.synchronize()
                begin = time.perf_counter()
                self._poison("inputs")
                self._device.flush_cache()
                self._device.probe()
                prelude_ms = 1000 * (time.perf_counter() - begin)
                self._preludes += 1
                self._disturbed += calm_ms is not None and prelude_ms > _DISTURBED_SHARE * calm_ms + _DISTURBED_MS
            if calm_ms is None or prelude_ms <= _DISTURBED_SHARE * calm_ms + _DISTURBED_MS:
                return prelude_ms
            if self._disturbed > _MOST_DISTURBED + _MOST_DISTURBED_SHARE * self._preludes:
                raise Violation(
                    f"the device was busy while every process was stopped: {self._disturbed} of {self._preludes} times "
                    f"the judge's own steps took longer than before the candidate was constructed, at last "
                    f"{prelude_ms:.3f} instead of {calm_ms:.3f} ms"
                )

    def _restore_inputs(self, commitment: Commitment, inputs: _Inputs) -> None:
        """Write what the runner was given once more, for the comparison."""
        again = inputs.kept or self._make_inputs(inputs)
        for target, tensor in zip(self._blocks["inputs"].tensors, again, strict=True):
            target.copy_(tensor)
        if inputs.kept is None:
            made = Commitment()
            self._verifier.commit(made, "inputs", again)
            if any(commitment.fingerprints[place] != value for place, value in made.fingerprints.items()):
                raise _NotRepeatable

    def _make_inputs(self, inputs: _Inputs) -> list[torch.Tensor]:
        specs = self._reference.signature.input_tensors
        return self._source.make(specs, inputs.variant, inputs.seed, avoid_zero=inputs.avoid_zero)

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
        overhead_ms = self._overhead_ms(track, series)
        self._check_clocks(track, series, overhead_ms)
        self._check_floor(track, series)
        self._check_baseline(track, series, candidate, baseline)
        believed = _credited(series, overhead_ms, _FLOOR_MS[self._device.torch_device.type])
        put_off = self._put_off_ms(track, candidate, baseline)
        credited = [sample + more for sample, more in zip(believed, put_off, strict=True)]
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

    def _check_baseline(
        self, track: str, series: SampleSeries, candidate: list[TimedCall], baseline: list[TimedCall]
    ) -> None:
        """The baseline must take about as long as it did before the candidate had the shared memory.

        Raises ``InfrastructureFault``: the cause may as well be the machine.
        """
        now_ms, calm_ms = median_ms(series.baseline_device_ms), self._calm_baseline_ms[track]
        self.outcome.details.setdefault("calm", {})[track] = {
            "prelude_ms": median_ms([call.prelude_ms for call in (*candidate, *baseline)]),
            "prelude_before_ms": self._calm_prelude_ms.get(track),
            "baseline_before_ms": calm_ms,
            "disturbed": self._disturbed,
            "preludes": self._preludes,
        }
        if not self._device.outlives_processes:
            return
        doubt_ms = _NOISE_FACTOR * median_error(series.baseline_device_ms) + self._calm_slack_ms(series)
        if now_ms > _SLOWER_BASELINE * calm_ms + doubt_ms:
            raise InfrastructureFault(
                f"the baseline takes {now_ms:.3f} ms, and took {calm_ms:.3f} ms before the candidate was constructed"
            )

    def _put_off_ms(self, track: str, candidate: list[TimedCall], baseline: list[TimedCall]) -> list[float]:
        """For each call, how much longer copying the outputs took than for the baseline: work put off until then.

        Call by call, and with the baseline's noise alone: what a candidate adds to its own must not hide anything.
        """
        theirs = [call.delivery_ms for call in baseline]
        allowed_ms = (
            median_ms(theirs) + _NOISE_FACTOR * median_error(theirs) + _FLOOR_MS[self._device.torch_device.type]
        )
        self.outcome.details.setdefault("delivery_ms", {})[track] = {
            "candidate": median_ms([call.delivery_ms for call in candidate]),
            "baseline": median_ms(theirs),
            "allowed": allowed_ms,
        }
        return [call.delivery_ms - median_ms(theirs) if call.delivery_ms > allowed_ms else 0.0 for call in candidate]

    def _overhead_ms(self, track: str, series: SampleSeries) -> float:
        """What lies between the two clocks for the baseline.

        Not more than before the candidate had the shared memory, give or take the slack: a candidate that
        could prolong what happens around the baseline's calls could hide as much of its own.
        """
        now = median_ms(_differences(series.baseline_outer_ms, series.baseline_device_ms))
        if not self._device.outlives_processes:
            return now  # nothing works on a CPU while its process is stopped
        return min(now, self._calm_overhead_ms[track] + self._calm_slack_ms(series))

    def _check_clocks(self, track: str, series: SampleSeries, overhead_ms: float) -> None:
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
            "baseline": overhead_ms,
            "slack": slack,
            "noise": noise,
        }
        if median_ms(ours) - overhead_ms > slack + noise:
            raise ClocksDisagree(
                f"inner and outer clock disagree: {median_ms(ours):.3f} ms of each call lie outside of what the runner "
                f"measured, {overhead_ms:.3f} ms for the baseline, and {slack + noise:.3f} ms more are allowed"
            )

    def _slack_ms(self, series: SampleSeries) -> float:
        longest = max(median_ms(series.baseline_outer_ms), median_ms(series.candidate_device_ms))
        return _SLACK_MS + _SLACK_SHARE * longest

    def _calm_slack_ms(self, series: SampleSeries) -> float:
        return _CALM_SLACK_MS + _CALM_SLACK_SHARE * median_ms(series.baseline_outer_ms)

    def _check_floor(self, track: str, series: SampleSeries) -> None:
        """No sample may be below what moving the bytes takes: the outputs, and the inputs that they depend on."""
        signature = self._reference.signature
        moved = sum(spec.size_bytes for spec in signature.outputs)
        for index, spec in enumerate(signature.float_inputs):
            moved += int(spec.size_bytes * self._verifier.influence.get(index, 0.0))
        floor_ms = self._device.floor_ms(moved)
        self.outcome.details.setdefault("floor_ms", {})[track] = floor_ms
        fastest = min(series.candidate_device_ms)
        if fastest < floor_ms:
            raise Violation(
                f"a call in {fastest:.4f} ms is faster than this device can move {moved} bytes, which takes "
                f"{floor_ms:.4f} ms at the least"
            )

    def _take_memory(self, side: Side, other: Side) -> None:
        """Where memory is lean: have ``other`` give its allocator's memory back, and ``side`` take its own."""
        if self._plan.lean:
            for each, operation in ((other, "release_memory"), (side, "reserve_memory")):
                if not each.link.constructed:
                    continue  # it has nothing to give back yet
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

    def _blame_for_memory(self, message: str) -> None:
        """The judge or the baseline ran out of memory, which the plan has room for: the candidate holds it, or
        the plan is wrong, and that is for us to know."""
        used = self._device.total_bytes() - self._device.free_bytes()
        ours = self._used_before + self._plan.peak_bytes - (0 if self._plan.lean else self._plan.runner_bytes)
        if used - ours <= self._plan.runner_bytes:
            raise DoesNotFit(f"the plan of {self._plan.describe()} was not enough: {message}") from None
        self._note_verdict(
            Verdict.OUT_OF_MEMORY,
            f"the candidate holds so much memory that none is left for its reference: {used / 2**30:.1f} GiB of "
            f"{self._device.total_bytes() / 2**30:.1f} GiB are in use, planned were {self._plan.describe()}",
        )

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
        except RunnerFailed as error:
            if error.failure is Failure.OUT_OF_MEMORY:
                self._blame_for_memory(str(error))
                raise _Concluded from None
            raise ProblemError(f"{what}: {error}") from error
        except RunnerTimeout as error:
            raise ProblemError(f"{what}: {error}") from error
        except RunnerGone as error:
            raise InfrastructureFault(f"{what}: its process ended") from error

    @contextlib.contextmanager
    def _awake(self, side: Side) -> Iterator[None]:
        """Let the processes of ``side`` run, and stop them again at the end."""
        self._wake(side)
        try:
            yield
        finally:
            # Stopped, it cannot slow down what it is compared with, nor write late.
            side.enclosure.freeze()

    def _wake(self, side: Side) -> None:
        side.enclosure.thaw()
        if side.enclosure.ran_while_stopped_s > _RAN_S:
            raise Violation(
                f"{side.name}'s processes used {side.enclosure.ran_while_stopped_s:.2f} s of processor time while "
                "they were stopped: they wake each other"
            )


def _device(calls: Sequence[TimedCall]) -> list[float]:
    return [call.report.device_ms for call in calls]


def _outer(calls: Sequence[TimedCall]) -> list[float]:
    return [call.outer_ms for call in calls]


def _differences(outer: Sequence[float], inner: Sequence[float]) -> list[float]:
    return [a - b for a, b in zip(outer, inner, strict=True)]


def _credited(series: SampleSeries, overhead_ms: float, floor_ms: float) -> list[float]:
    """The candidate's device times, moved up where the judge's clock says that something is left out of them.

    The median outer time minus ``overhead_ms``, the baseline's, should be the median device time. Where it is above
    that by more than four standard errors of the overhead, or by ``floor_ms`` and by as much again as the
    runner says, the whole difference is put back, and those standard errors with it: doubt is at the cost of who
    left it. An honest series is left as it is, so it stays as steady as the device's own clock.
    """
    overheads = _differences(series.baseline_outer_ms, series.baseline_device_ms)
    claimed = median_ms(series.candidate_device_ms)
    missing = median_ms(series.candidate_outer_ms) - overhead_ms - claimed
    doubt = _NOISE_FACTOR * median_error(overheads)
    if missing <= min(doubt, max(claimed, floor_ms)):
        return list(series.candidate_device_ms)
    return [sample + missing + doubt for sample in series.candidate_device_ms]
