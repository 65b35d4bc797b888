"""One evaluation from the judge's side: construct, verify, sample, conclude."""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

import torch

from evaluator.config import EvalConfig, Limits
from evaluator.errors import DoesNotFit, InfrastructureFault, ProblemError
from evaluator.evaluation import (
    ErrorFigures,
    Gradients,
    Interval,
    Latency,
    SampleSeries,
    Verdict,
)
from evaluator.gate import GATE
from evaluator.judge.calls import Caller, Learnt, Side
from evaluator.judge.device import Device
from evaluator.judge.inputs import InputSource, Variant
from evaluator.judge.link import RunnerFailed, RunnerGone, RunnerTimeout, TimedCall
from evaluator.judge.plan import MemoryPlan, plan_memory
from evaluator.judge.reference import Reference
from evaluator.judge.sampling import INFERENCE, INFERENCE_WARM, TRAINING, Sampler, Track
from evaluator.judge.verify import CallFindings, Verifier, Violation
from evaluator.judge.work import count_work
from evaluator.memory import Block, create_block
from evaluator.problem import Problem
from evaluator.protocol import MAX_GRADIENTS, CallMode, Failure
from evaluator.roofline import Roofline, Work, share_of_roofline

__all__ = ["KeptBaseline", "Outcome", "Session", "Supervisor"]

_TRIALS: Final = (
    Variant.AS_WRITTEN,
    Variant.SIGNED,
    Variant.WIDE,
    Variant.SPECIAL,
    Variant.STRUCTURED,
)
_GRADIENT_TRIALS: Final = (Variant.SIGNED, Variant.AS_WRITTEN, Variant.WIDE)
_WHOLE_TRIALS: Final = 2
_WHOLE_GRADIENT_TRIALS: Final = 1
"""After so many trials in which every element of tensors was compared that are treated in slices, secret rows of
theirs are enough."""
_REFERENCE_S: Final = Limits.construct_s
"""The reference is not held to less, however little time a candidate has."""
_CLEAN_S: Final = 10.0
_CLEAN_POLL_S: Final = 0.02
_LEFT_BYTES: Final = 2**30
_WARM_CACHES: Final = 4
"""Warm and cold differ while the tensors of a call are at most so many times as large as the last-level cache."""

_VERDICTS: Final = {
    Failure.LOAD: Verdict.LOAD_ERROR,
    Failure.CONSTRUCT: Verdict.CONSTRUCT_ERROR,
    Failure.RUNTIME: Verdict.RUNTIME_ERROR,
    Failure.OUT_OF_MEMORY: Verdict.OUT_OF_MEMORY,
    Failure.WRONG_SHAPE: Verdict.WRONG_SHAPE,
    Failure.WRONG_DTYPE: Verdict.WRONG_DTYPE,
}


_HARMLESS: Final = frozenset(
    {
        Verdict.PASSED,
        Verdict.LOAD_ERROR,
        Verdict.CONSTRUCT_ERROR,
        Verdict.WRONG_SHAPE,
        Verdict.WRONG_DTYPE,
        Verdict.WRONG_OUTPUT,
        Verdict.WRONG_GRADIENT,
    }
)
"""After these, nothing says that the candidate has done anything to the device that its baseline could have felt."""


@dataclass
class Outcome:
    """What the judge found. ``verdict`` of ``None``: the runner ended; its supervisor knows how. ``keeps_baseline``:
    the baseline's process holds nothing of this evaluation any more, and can be that of the next one. ``put_back``: the
    tracks with cold caches on which time was added that the candidate seemed to have left out, and so much that it
    shows."""

    verdict: Verdict | None = None
    message: str = ""
    stage: str = "loading"
    gradients: Gradients = Gradients.NOT_CHECKED
    speedup: float | None = None
    speedup_interval: Interval | None = None
    speedup_training: float | None = None
    speedup_training_interval: Interval | None = None
    speedup_warm: float | None = None
    speedup_warm_interval: Interval | None = None
    latency_ms: Latency | None = None
    latency_warm_ms: Latency | None = None
    latency_training_ms: Latency | None = None
    roofline_share: float | None = None
    roofline: dict[str, Roofline] = field(default_factory=dict)
    errors: ErrorFigures = field(default_factory=ErrorFigures)
    notes: list[str] = field(default_factory=list)
    samples: dict[str, SampleSeries] = field(default_factory=dict)
    details: dict[str, Any] = field(default_factory=dict)
    peak_memory_bytes: int | None = None
    stage_s: dict[str, float] = field(default_factory=dict)
    keeps_baseline: bool = False
    put_back: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class KeptBaseline:
    """A baseline's process that goes on from one evaluation to the next of the same problem under the same settings,
    with its model on the device, which takes ``held_bytes``, and what was learnt of it."""

    side: Side
    learnt: Learnt
    held_bytes: int


class _Concluded(Exception):
    """The verdict stands; ``Session.outcome`` has it."""


@dataclass(frozen=True)
class Supervisor:
    """What a session has its supervisor do: show how far it is; give the runners their tasks; see to it that it starts
    nothing more; let others of its own come to the device, while nothing is timed; see to it that they do nothing there
    any more, and say whether they wait there."""

    progress: Callable[[str, str, float | None], None]
    assign: Callable[[], None]
    still: Callable[[], None]
    admit: Callable[[], None]
    settle: Callable[[], bool]


class Session:
    """One evaluation. ``baseline``: a new process, or one that is kept from an evaluation before. ``contexts``: how
    many processes will come to the device meanwhile, and wait there; ``keeps``: whether the baseline is wanted for
    another evaluation. ``run`` never raises for what a candidate does; ``close`` gives the memory back."""

    def __init__(
        self,
        problem: Problem,
        config: EvalConfig,
        device: Device,
        candidate: Side,
        baseline: Side | KeptBaseline,
        supervisor: Supervisor,
        *,
        contexts: int,
        keeps: bool,
    ) -> None:
        self._problem = problem
        self._config = config
        self._device = device
        self._candidate = candidate
        self._kept = baseline if isinstance(baseline, KeptBaseline) else None
        self._baseline = baseline.side if isinstance(baseline, KeptBaseline) else baseline
        self._supervisor = supervisor
        self._contexts = contexts
        self._keeps = keeps
        self._baseline_bytes = 0 if self._kept is None else self._kept.held_bytes
        self._blocks: dict[str, Block] = {}
        self._warming: dict[tuple[Variant, bool], list[torch.Tensor]] = {}
        self._deadline = time.monotonic() + config.limits.total_s
        self._used_before = device.idle.used_bytes
        self._peak_bytes = 0
        self._held_before = 0
        self._gradients_required = (
            problem.gradient_policy == "require" if config.require_gradients is None else config.require_gradients
        )
        self._training = True
        self._max_abs: float | None = None
        self._max_rel: float | None = None
        self._reference_max_rel: float | None = None
        self._work: dict[str, Work] | None = None
        self.outcome = Outcome()

    def run(self) -> Outcome:
        """Carry the evaluation out. Raises ``DoesNotFit`` and ``ProblemError``; both are not the candidate's."""
        try:
            with self._stage("preparing"):
                self._prepare()
            self._supervisor.assign()
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
        self.outcome.keeps_baseline = self._keeps and self.outcome.verdict in _HARMLESS and self._baseline_lets_go()
        return self.outcome

    def close(self, *, keeps_baseline: bool) -> str:
        """Free everything, and say what is left behind all the same. Call it when the runners are gone, or have let go:
        they map the same memory."""
        gates = (side.gate for side in (self._candidate, self._baseline))
        for block in (*self._blocks.values(), *(gate for gate in gates if gate is not None)):
            block.close()
        self._blocks = {}
        self._warming.clear()
        self._candidate.gate = self._baseline.gate = None
        for side in (self._candidate, *(() if keeps_baseline else (self._baseline,))):
            side.close()
        self._device.release_cache()
        return self._left_behind(keeps_baseline=keeps_baseline)

    @property
    def kept(self) -> KeptBaseline:
        """The baseline, for the next evaluation."""
        return KeptBaseline(self._baseline, self._caller.learnt, self._baseline_bytes)

    def _baseline_lets_go(self) -> bool:
        """Have the baseline close the shared memory; whether it has, can take other weights, and there is room for it
        beside another evaluation."""
        kept = self._kept
        if not self._baseline.link.shares:
            return kept is not None  # as it was; a new one may not have come as far as its model
        try:
            if kept is None and not self._takes_weights():
                return False
            self._baseline_bytes = self._caller.let_go(self._baseline)
        except (RunnerFailed, RunnerGone, RunnerTimeout, InfrastructureFault):
            return False
        self._baseline.enclosure.ran_while_stopped_s = 0.0
        # What one that was kept before holds is no room any more.
        held_before = -self._device.context_bytes if kept is None else kept.held_bytes
        return self._plan.has_room_for(self._baseline_bytes - held_before)

    def _takes_weights(self) -> bool:
        """Whether the baseline's model is, with weights that it was not constructed with, what it would be with its
        own: tried while it does not matter yet."""
        if not all(spec.torch_dtype.is_floating_point for _, spec in self._reference.signature.weights):
            return False  # only these are loaded
        self._caller.load_weights(self._baseline, self._weight_names)
        report = self._baseline.link.weight_report()
        return not report.differing and report.counterparts == (1 << len(self._weight_names)) - 1

    def _left_behind(self, *, keeps_baseline: bool) -> str:
        """What is not as it was before, although the runners are gone; empty where nothing is."""
        if not self._device.outlives_processes:
            return ""
        left = 0
        allowed = _LEFT_BYTES
        # Besides those of two that wait, one that is kept has its context and its model there.
        if self._kept is not None:
            allowed -= self._device.context_bytes + self._kept.held_bytes
        if keeps_baseline:
            allowed += self._device.context_bytes + self._baseline_bytes

        def clean() -> bool:
            nonlocal left
            # Two runners had their contexts then, and two that wait have theirs now; where none do, two contexts more
            # could be left unnoticed.
            left = self._device.foreign_bytes() - self._device.idle.foreign_bytes
            return left <= allowed and self._device.is_quiet()

        if _comes_true(clean):
            return ""
        return f"{left / 2**30:.1f} GiB of device memory more than before are in use, or the device is busy"

    def _prepare(self) -> None:
        """Find out whether it fits, then allocate. Nothing is asked of the candidate before this is done."""
        problem, config, device = self._problem, self._config, self._device
        self._require_quiet()
        self.outcome.details["ceilings"] = asdict(device.ceilings())
        self._reference = Reference(problem, config.size, config.precision, device)
        signature = self._reference.signature
        self._training = problem.gradient_policy != "none" and signature.differentiable
        if len(signature.float_inputs) + len(signature.weights) >= MAX_GRADIENTS:
            raise ProblemError(f"more than {MAX_GRADIENTS - 1} gradients cannot be compared")
        plan = plan_memory(
            signature,
            device,
            sliced=problem.row_independent and signature.rows is not None,
            gradients=self._training,
            limit=config.limits.device_memory_bytes,
            contexts=self._contexts,
        )
        self._plan: MemoryPlan = plan
        for name, layout in plan.layouts.items():
            self._blocks[name] = create_block(layout, device.torch_device)
        for side in (self._candidate, self._baseline):
            if device.outlives_processes:
                side.gate = create_block(GATE, device.torch_device)
                side.gate.memory.zero_()
        self._source = InputSource(
            self._reference.get_inputs,
            device.torch_device,
            variants=problem.input_domain == "real" and not config.given_inputs_only,
        )
        self._sampled = Variant.MIXED if self._source.available(Variant.MIXED) else Variant.AS_WRITTEN
        self._verifier = Verifier(
            self._reference,
            self._blocks,
            problem.tolerance(config.precision),
            device.generator,
            device.slice_elements if problem.row_independent else None,
        )
        self._caller = Caller(
            device,
            config.limits,
            self._candidate,
            self._baseline,
            self._blocks,
            signature.input_tensors,
            self._source,
            self._verifier,
            plan.lean,
            self._blamed,
            self._warming,
            Learnt() if self._kept is None else self._kept.learnt,
        )
        self._sampler = Sampler(
            self._caller,
            config.sampling,
            self._sample_pair,
            self._floor_ms,
            lambda message, share: self._report("sampling", message, share),
        )
        self._output_names = {tally.name for tally in self._verifier.output_tallies()}
        self.outcome.gradients = Gradients.NOT_CHECKED if self._training else Gradients.NOT_APPLICABLE
        if problem.gradient_policy == "none":
            self.outcome.gradients = Gradients.NOT_CHECKED
        self.outcome.details["memory_plan"] = plan.describe()

    def _require_quiet(self) -> None:
        """Nobody else may be at work on the device, or no figure of this evaluation would be worth anything."""
        if not _comes_true(self._device.is_quiet):
            raise InfrastructureFault("the device is busy with something that is not part of this evaluation")

    def _run_stages(self) -> None:
        limits, sampling = self._config.limits, self._config.sampling
        with self._stage("loading"):
            self._candidate.link.await_ready(limits.load_s + limits.build_s, "importing the module")
            if self._kept is None:
                with self._ours("the reference does not import"):
                    self._baseline.link.await_ready(limits.load_s, "importing the reference")
        with self._stage("constructing"):
            self._construct()
        with self._stage("verifying"):
            self._verify(sampling.trials, sampling.gradient_trials)
            others_wait = self._supervisor.settle()
        self._note_memory(coming=self._device.waiting_bytes * self._contexts // 2 if others_wait else 0)
        if sampling.max_samples:
            with self._stage("sampling"):
                self._caller.alone = True
                if not self._device.outlives_processes:
                    self._caller.decide_releases()
                self._sample_track(INFERENCE)
                if sampling.warm_samples and self._fits_caches():
                    self._sample_track(INFERENCE_WARM)
                if self.outcome.gradients is Gradients.MATCH:
                    self._sample_track(TRAINING)
        self._note_verdict(Verdict.PASSED, "")

    def _construct(self) -> None:
        """Have the models constructed, side by side with the reference; then show the shared memory, to the baseline
        first: what the candidate does with it does not exist yet when the baseline is called."""
        seed = secrets.randbits(63)
        limits, signature = self._config.limits, self._reference.signature
        message = {
            "seed": seed,
            "device": str(self._device.torch_device),
            "precision": self._config.precision,
            "products": signature.products,
            "weights": bool(signature.weights),
        }
        if self._kept is None:
            with self._ours("the reference does not construct"):
                self._baseline.link.begin_construct(message)
        self._candidate.link.begin_construct(message)
        self._reference.construct(seed, self._baseline.enclosure.processors)
        for target, value in zip(self._blocks["weights"].tensors, self._reference.weight_values(), strict=True):
            target.copy_(value)
        self._device.synchronize()
        if self._kept is None:
            with self._ours("the reference does not construct"):
                self._baseline.link.await_ready(max(limits.construct_s, _REFERENCE_S), "constructing the reference")
        self._candidate.link.await_ready(limits.construct_s + limits.late_build_s, "constructing ModelNew")
        for side in (self._candidate, self._baseline):
            side.enclosure.freeze()
        self._supervisor.still()
        if not _comes_true(self._device.is_quiet):
            raise Violation("the device was busy while every process was stopped, before any call was made")
        self._weight_names = [name for name, _ in signature.weights]
        shared = {
            "baseline": "eager",
            "load_weights": False,
            "inputs": [value if isinstance(value, dict) else None for value in signature.inputs],
            "weight_names": self._weight_names,
        }
        with self._ours("the reference does not construct"), self._running(self._baseline):
            self._baseline.link.share(
                # One that is kept was constructed under another seed.
                shared | {"baseline": self._config.baseline, "load_weights": self._kept is not None},
                self._blocks_of(self._baseline),
                max(limits.construct_s, _REFERENCE_S),
            )
        if self._config.sampling.max_samples:
            with self._blamed(self._baseline):
                self._caller.calibrate(CallMode.FORWARD)
                if self._training and self._config.sampling.gradient_trials:
                    self._caller.calibrate(CallMode.BACKWARD)
        self._held_before = self._device.foreign_bytes()
        self._supervisor.admit()
        with self._running(self._candidate):
            self._candidate.link.share(shared, self._blocks_of(self._candidate), limits.call_s)

    @contextlib.contextmanager
    def _running(self, side: Side) -> Iterator[None]:
        """Let the processes of ``side`` run, and stop them again at the end."""
        side.enclosure.thaw()
        try:
            yield
        finally:
            side.enclosure.freeze()

    def _blocks_of(self, side: Side) -> dict[str, Block]:
        """What a side is given: the shared memory, and a gate that the other one cannot touch."""
        return self._blocks if side.gate is None else {**self._blocks, "gate": side.gate}

    def _fits_caches(self) -> bool:
        """Whether it makes a difference what is in the caches."""
        moved = sum(self._blocks[name].layout.size_bytes for name in ("inputs", "weights", "outputs"))
        return moved <= _WARM_CACHES * self._device.cache_bytes

    def _verify(self, trials: int, gradient_trials: int) -> None:
        """Forward trials, then gradient trials; sets the gradient result, concludes where something is wrong."""
        loaded = False
        conclusive = 0
        variants = list(self._cycle(_TRIALS, trials))
        position = 0
        while position < len(variants):
            variant = variants[position]
            self._report("verifying", f"forward, inputs {variant.value}", position / (trials + gradient_trials))
            glance = conclusive >= _WHOLE_TRIALS and self._verifier.sliced
            _, findings = self._call_candidate(CallMode.FORWARD, variant, first=position == 0, glance=glance)
            differing = self._candidate.link.weight_report().differing
            if findings.verdict is Verdict.WRONG_OUTPUT and differing and not loaded:
                # Constructed from another stream of random numbers than the reference, perhaps: try its weights.
                self._caller.load_weights(self._candidate, self._weight_names)
                self.outcome.notes.append(
                    f"{differing} weights differed from the reference's after constructing under the same seed; "
                    "the reference's were loaded"
                )
                loaded, position, conclusive = True, 0, 0
                continue
            self._conclude_if_wrong(findings)
            conclusive += not findings.inconclusive
            if position == 0:
                self._try_baseline(INFERENCE)
            position += 1
        if not conclusive:
            raise ProblemError("the reference is not finite on any of its inputs: nothing can be compared")
        if self._training:
            self._verify_gradients(gradient_trials, trials)

    def _verify_gradients(self, gradient_trials: int, trials: int) -> None:
        conclusive = 0
        for number, variant in enumerate(self._cycle(_GRADIENT_TRIALS, gradient_trials)):
            share = (trials + number) / (trials + gradient_trials)
            self._report("verifying", f"gradients, inputs {variant.value}", share)
            glance = conclusive >= _WHOLE_GRADIENT_TRIALS and self._verifier.sliced
            _, findings = self._call_candidate(CallMode.BACKWARD, variant, glance=glance)
            conclusive += not findings.inconclusive
            if not findings.inconclusive:
                self.outcome.gradients = findings.gradients
            self._conclude_if_wrong(findings)
            self._note_once(findings.gradient_notes)
            if number == 0:
                self._try_baseline(TRAINING)
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

    def _sample_track(self, track: Track) -> None:
        """Record the figures of one track."""
        for side in (self._baseline, self._candidate):
            self._caller.command(side, {"op": "release_memory"})
        measured = self._sampler.measure(track)
        self._measure_memory()  # what an allocator has once been given, it keeps
        outcome = self.outcome
        if measured.put_back and track.cold:
            outcome.put_back.append(track.title)
        outcome.samples[track.name] = measured.samples
        outcome.notes.extend(measured.notes)
        outcome.details.setdefault("tracks", {})[track.name] = measured.details
        if track is INFERENCE:
            outcome.speedup, outcome.speedup_interval = measured.speedup, measured.interval
            outcome.latency_ms = measured.latency
        elif track is INFERENCE_WARM:
            outcome.speedup_warm, outcome.speedup_warm_interval = measured.speedup, measured.interval
            outcome.latency_warm_ms = measured.latency
        else:
            outcome.speedup_training, outcome.speedup_training_interval = measured.speedup, measured.interval
            outcome.latency_training_ms = measured.latency
        if track.cold:
            self._record_roofline(track, measured.latency)

    def _record_roofline(self, track: Track, latency: Latency) -> None:
        outcome = self.outcome
        try:
            if self._work is None:
                self._work = count_work(
                    self._reference, lambda: self._source.draw(secrets.randbits(63)), training=self._training
                )
            found = share_of_roofline(
                self._work[track.name], self._device.ceilings(), self._config.precision, latency.candidate
            )
        except Exception as error:  # noqa: BLE001 - a reference may raise anything; what is measured stands without
            self._note_once([f"no roofline: the reference's work cannot be counted: {error}"])
            return
        outcome.roofline[track.name] = found
        if track is INFERENCE:
            outcome.roofline_share = found.share
        self._note_once([note for note in [found.note(track.name)] if note is not None])

    def _sample_pair(self, track: Track, number: int) -> tuple[TimedCall, TimedCall]:
        """One call of each side on inputs of the same kind; ABBA: who is first alternates."""
        if number % 2:
            theirs = self._sample_baseline(track)
            return self._sample(track), theirs
        ours = self._sample(track)
        return ours, self._sample_baseline(track)

    def _sample(self, track: Track) -> TimedCall:
        call, findings = self._call_candidate(track.mode, self._sampled, glance=True, cold=track.cold)
        self._conclude_if_wrong(findings)
        if track.mode is CallMode.BACKWARD and findings.gradients is not Gradients.MATCH and not findings.inconclusive:
            self._conclude(Verdict.WRONG_GRADIENT, f"gradients were {findings.gradients} in a timed call, not before")
        return call

    def _sample_baseline(self, track: Track) -> TimedCall:
        with self._blamed(self._baseline):
            call, commitment = self._caller.call(
                self._baseline, track.mode, self._sampled, self._config.limits.call_s, glance=True, cold=track.cold
            )
        if self._device.outlives_processes and self._caller.is_short(track.mode):
            # Whatever comes next finds the processor's caches as it would after a call of the candidate's: without
            # this, the candidate's calls had some 10 µs more around them than the baseline's on an H200.
            self._verifier.verify_outputs(commitment, self._sampled)
        return call

    def _try_baseline(self, track: Track) -> None:
        """Where nothing is timed, the baseline would not be called at all, and what is wrong with it not be found."""
        if not self._config.sampling.max_samples:
            self._sample_baseline(track)

    def _call_candidate(
        self, mode: CallMode, variant: Variant, *, first: bool = False, glance: bool = False, cold: bool = True
    ) -> tuple[TimedCall, CallFindings]:
        if time.monotonic() > self._deadline:
            raise RunnerTimeout(f"the evaluation took longer than {self._config.limits.total_s:.0f} s in all")
        # Some candidates build their extension in the first call.
        timeout_s = self._config.limits.call_s + (self._config.limits.late_build_s if first else 0.0)
        call, commitment = self._caller.call(self._candidate, mode, variant, timeout_s, glance=glance, cold=cold)
        if call.report.device_ms <= 0:
            raise Violation("the runner reported a call that took no time")
        if mode is CallMode.FORWARD:
            findings = self._verifier.verify_outputs(commitment, variant)
        else:
            counterparts = self._candidate.link.weight_report().counterparts
            findings = self._verifier.verify_gradients(commitment, call.report, counterparts, variant)
        if not glance or self._plan.lean:
            self._measure_memory()
        self._note_errors(findings)
        return call, findings

    def _floor_ms(self, _track: Track) -> float:
        """The least time for moving the outputs and the inputs that they depend on."""
        signature = self._reference.signature
        moved = sum(spec.size_bytes for spec in signature.outputs)
        for index, spec in enumerate(signature.float_inputs):
            moved += int(spec.size_bytes * self._verifier.influence.get(index, 0.0))
        return self._device.floor_ms(moved)

    def _blamed(self, side: Side) -> contextlib.AbstractContextManager[None]:
        return self._ours("the reference fails") if side is self._baseline else contextlib.nullcontext()

    def _measure_memory(self) -> None:
        used = self._device.total_bytes() - self._device.free_bytes()
        # A CPU's memory is everybody's; a CUDA device is the judge's and its runners'.
        foreign = self._used_before if self._device.torch_device.type == "cpu" else 0
        self._peak_bytes = max(self._peak_bytes, used - foreign)

    def _note_memory(self, *, coming: int) -> None:
        """Peaks that the runners' allocators report, and by how much what the device has given away has grown since
        the candidate was constructed, without the bytes that were ``coming``."""
        # Where memory is lean, both give back what they hold, and reserve it again.
        if self._device.outlives_processes and not self._plan.lean:
            self.outcome.details["memory"] = {
                "candidate_peak_bytes": self._caller.peak_bytes["candidate"],
                "baseline_peak_bytes": self._caller.peak_bytes["baseline"],
                "grown_bytes": max(0, self._device.foreign_bytes() - self._held_before - coming),
            }

    def _blame_for_memory(self, message: str) -> None:
        """The judge or the baseline ran out of memory, which the plan has room for: the candidate holds it, or
        the plan is wrong, and that is for us to know."""
        used = self._device.total_bytes() - self._device.free_bytes()
        held = 0 if self._kept is None else self._kept.held_bytes  # by the baseline: the plan has room for it as well
        ours = self._used_before - held + self._plan.peak_bytes - (0 if self._plan.lean else self._plan.runner_bytes)
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
            if findings.mismatch is not None:
                self.outcome.details["mismatch"] = findings.mismatch
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
        if outcome.verdict is not Verdict.PASSED:
            outcome.speedup = outcome.speedup_interval = None
            outcome.speedup_warm = outcome.speedup_warm_interval = None
            outcome.speedup_training = outcome.speedup_training_interval = None
            outcome.roofline_share = None
            outcome.roofline = {}
            outcome.put_back = []
            outcome.latency_ms = outcome.latency_warm_ms = outcome.latency_training_ms = None

    def _cycle(self, variants: Sequence[Variant], count: int) -> Iterator[Variant]:
        usable = [variant for variant in variants if self._source.available(variant)]
        return (usable[number % len(usable)] for number in range(count))

    def _report(self, stage: str, message: str, share: float | None = None) -> None:
        self._supervisor.progress(stage, message, share)

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


def _comes_true(condition: Callable[[], bool]) -> bool:
    """Whether ``condition`` holds within a few seconds."""
    deadline = time.monotonic() + _CLEAN_S
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(_CLEAN_POLL_S)
    return True
