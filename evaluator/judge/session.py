"""One session from the judge's side: construct, verify, sample and conclude, for one candidate or several together.

Several candidates are of one problem, under the same settings. Their models are constructed side by side. Each is
verified by itself, while all others are stopped. Each round of timed calls has one call of each candidate and one of
the baseline that they share.

A candidate that passes here has passed everything that it would have passed alone. But candidates share memory and a
device, and one could harm another. So only a pass is final, and any sign of possible harm ends the session for all. A
candidate that has not passed is evaluated alone (see ``evaluator.engine``).
"""

from __future__ import annotations

import contextlib
import operator
import random
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial, reduce
from typing import Any, Final

import torch

from evaluator.config import PLAIN_BASELINES, EvalConfig, Limits
from evaluator.errors import DoesNotFit, InfrastructureFault, ProblemError
from evaluator.evaluation import Gradients, Verdict
from evaluator.judge.candidate_session import BaselineSession, CandidateSession, Concluded, SessionContext
from evaluator.judge.correctness.reference import Reference
from evaluator.judge.device.device import Device
from evaluator.judge.errors import ClocksDisagree, DeviceBusy, Violation
from evaluator.judge.inputs.drawing import InputSource
from evaluator.judge.inputs.informative_kinds import USUAL_PROBLEMS, timed_kinds, usual_kinds
from evaluator.judge.inputs.planting import planter_of
from evaluator.judge.inputs.row_slices import require_slices
from evaluator.judge.link import RunnerFailed, RunnerGone, RunnerTimeout, TimedCall
from evaluator.judge.memory_plan import MemoryPlan, plan_memory
from evaluator.judge.reference_memory import use_of
from evaluator.judge.result import HARMLESS, Outcome
from evaluator.judge.tf32 import settle_tolerances, tolerances_as_stated
from evaluator.judge.timing.interference import InterferenceMonitor
from evaluator.judge.timing.sampling import Pair, Sampling
from evaluator.judge.timing.timed_call import ANY_OUTPUT, Calibrations, Caller, Participant
from evaluator.judge.timing.track import INFERENCE, INFERENCE_WARM, TRAINING, Track
from evaluator.problems.problem import Problem
from evaluator.protocol.control_page import MAX_GRADIENTS, CallMode, Failure
from evaluator.protocol.shared_memory import Block, create_block
from evaluator.protocol.stream_gate import GATE

__all__ = ["KeptBaseline", "Session", "SessionResult", "Supervisor"]

_REFERENCE_S: Final = Limits.construct_s
"""The reference has at least this time, in seconds, however little a candidate has."""
_CLEAN_S: Final = 10.0
_CLEAN_POLL_S: Final = 0.02
_LEFT_BYTES: Final = 2**30
_WARM_CACHES: Final = 4
"""Warm and cold calls differ while the tensors of a call are at most this many times as large as the last-level
cache."""

_DELIVERED_WITHIN: Final = (
    "this machine does not let the judge read the memory of other processes: outputs are copied within the calls of "
    "both sides, and every latency has that in it"
)

_VERDICTS: Final = {
    Failure.LOAD: Verdict.LOAD_ERROR,
    Failure.CONSTRUCT: Verdict.CONSTRUCT_ERROR,
    Failure.RUNTIME: Verdict.RUNTIME_ERROR,
    Failure.OUT_OF_MEMORY: Verdict.OUT_OF_MEMORY,
    Failure.WRONG_SHAPE: Verdict.WRONG_SHAPE,
    Failure.WRONG_DTYPE: Verdict.WRONG_DTYPE,
}


@dataclass(frozen=True)
class SessionResult:
    """The result of a session: an outcome for each candidate. ``keeps_baseline``: whether the baseline's process holds
    nothing of this session any more, and can serve the next one."""

    outcomes: list[Outcome] = field(default_factory=list)
    keeps_baseline: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, as it is sent to the supervisor."""
        return {"outcomes": [outcome.to_dict() for outcome in self.outcomes], "keeps_baseline": self.keeps_baseline}


@dataclass(frozen=True)
class KeptBaseline:
    """A baseline's process that is reused in the next session of the same problem under the same settings. Its model on
    the device takes ``held_bytes``; ``calibrations``: those made with it."""

    side: Participant
    calibrations: Calibrations
    held_bytes: int


class _Over(Exception):
    """No candidate is left, or none can go on beside the harm that may have happened."""


@dataclass(frozen=True)
class Supervisor:
    """The services of the supervisor for a session.

    - ``progress``: show the progress of one candidate, by its index.
    - ``assign``: give the runners their tasks.
    - ``stop_starting``: make sure that it starts nothing more.
    - ``allow_device_use``: let its other processes come to the device, while nothing is timed.
    - ``quiesce``: make sure that they do nothing there any more, and return whether they wait there.
    """

    progress: Callable[[int, str, str, float | None], None]
    assign: Callable[[], None]
    stop_starting: Callable[[], None]
    allow_device_use: Callable[[], None]
    quiesce: Callable[[], bool]


class Session:
    """One evaluation of each of ``candidates``. ``baseline``: a new process, or one that is reused from an earlier
    session. ``contexts``: the number of processes that come to the device meanwhile and wait there, besides the
    ``spare`` ones that already do. ``keeps``: whether the baseline is wanted for another evaluation. ``run`` never
    raises for a candidate's actions; ``close`` gives the memory back."""

    def __init__(
        self,
        problem: Problem,
        config: EvalConfig,
        device: Device,
        candidates: Sequence[Participant],
        baseline: Participant | KeptBaseline,
        supervisor: Supervisor,
        *,
        contexts: int,
        spare: int,
        keeps: bool,
    ) -> None:
        self._problem = problem
        self._config = config
        self._device = device
        self._candidates = list(candidates)
        self._kept = baseline if isinstance(baseline, KeptBaseline) else None
        self._baseline = baseline.side if isinstance(baseline, KeptBaseline) else baseline
        self._supervisor = supervisor
        self._contexts = contexts
        self._spare = spare
        self._keeps = keeps
        self._baseline_bytes = 0 if self._kept is None else self._kept.held_bytes
        self._blocks: dict[str, Block] = {}
        # The same for several candidates: none has longer among others than alone.
        self._deadline = time.monotonic() + config.limits.total_s
        self._used_before = device.idle.used_bytes
        self._outcomes = [Outcome() for _ in self._candidates]
        self._random = random.SystemRandom()
        self._candidate_sessions: list[CandidateSession] = []
        self._active: tuple[CandidateSession, ...] = ()
        """The candidates that are still in the running."""

    def run(self) -> SessionResult:
        """Carry the evaluations out. Raises ``DoesNotFit`` and ``ProblemError``; neither is the candidates' fault."""
        try:
            with self._stage("preparing"):
                self._prepare()
        except torch.OutOfMemoryError as error:
            raise DoesNotFit(f"the plan was not enough: {error}") from None
        self._supervisor.assign()
        with contextlib.suppress(_Over), self._attributing(*self._candidate_sessions):
            self._run_stages()
        for candidate_session in self._candidate_sessions:
            candidate_session.finish()
        for outcome in self._outcomes:
            outcome.details["memory_before_bytes"] = self._used_before
            if outcome.verdict is not Verdict.PASSED:
                outcome.drop_figures()
        harmless = all(outcome.verdict in HARMLESS for outcome in self._outcomes)
        return SessionResult(self._outcomes, keeps_baseline=self._keeps and harmless and self._baseline_closes_shared())

    def close(self, *, keeps_baseline: bool) -> str:
        """Free the shared memory, and describe the leftovers on the device (empty without any). Call it when the
        runners have ended or have let go. The session's own memory is freed when it is collected."""
        sides = (*self._candidates, self._baseline)
        for block in (*self._blocks.values(), *(side.gate for side in sides if side.gate is not None)):
            block.close()
        self._blocks = {}
        for side in sides:
            side.gate = None
        for side in (*self._candidates, *(() if keeps_baseline else (self._baseline,))):
            side.close()
        return self._left_behind(keeps_baseline=keeps_baseline)

    @property
    def kept(self) -> KeptBaseline:
        """The baseline, for reuse in the next evaluation."""
        return KeptBaseline(self._baseline, self._context.calibrations, self._baseline_bytes)

    @property
    def _caller(self) -> Caller:
        """The caller of the baseline."""
        return self._baseline_session.caller

    def _baseline_closes_shared(self) -> bool:
        """Have the baseline close the shared memory. Return whether it has, can take other weights, and fits beside
        another evaluation."""
        kept = self._kept
        if not self._baseline.link.shares:
            return kept is not None  # a reused one is unchanged; a new one may not have constructed its model yet
        try:
            if kept is None and not self._takes_weights():
                return False
            self._baseline_bytes = self._caller.close_shared(self._baseline)
        except (RunnerFailed, RunnerGone, RunnerTimeout, InfrastructureFault):
            return False
        self._baseline.freezer.ran_while_stopped_s = 0.0
        # The bytes of a baseline that was reused before are not counted as free.
        held_before = -self._device.context_bytes if kept is None else kept.held_bytes
        return self._context.plan.has_room_for(self._baseline_bytes - held_before)

    def _takes_weights(self) -> bool:
        """Whether the baseline's model is the same with loaded weights as with its constructed ones. This is tried when
        it can do no harm any more."""
        if not all(spec.torch_dtype.is_floating_point for _, spec in self._context.reference.signature.weights):
            return False  # only floating-point weights are loaded
        self._caller.load_weights(self._baseline)
        report = self._baseline.link.weight_report()
        return not report.differing and report.counterparts == (1 << len(self._context.reference.signature.weights)) - 1

    def _left_behind(self, *, keeps_baseline: bool) -> str:
        """Describe the difference to the device's former state, after the runners have ended; empty where there is
        none."""
        if not self._device.asynchronous:
            return ""
        left = 0
        allowed = _LEFT_BYTES
        # Besides the contexts of waiting runners, the device has the context and the model of a reused baseline.
        if self._kept is not None:
            allowed -= self._device.context_bytes + self._kept.held_bytes
        if keeps_baseline:
            allowed += self._device.context_bytes + self._baseline_bytes

        def clean() -> bool:
            nonlocal left
            # The runners had their contexts then, and as many waiting ones have theirs now. Where none wait, this much
            # more could be left unnoticed.
            left = self._device.foreign_bytes() - self._device.idle.foreign_bytes
            return left <= allowed and self._device.is_idle()

        if _comes_true(clean):
            return ""
        return f"{left / 2**30:.1f} GiB of device memory more than before are in use, or the device is busy"

    def _prepare(self) -> None:
        """Find out whether the evaluation fits, then allocate. No candidate is asked for anything before this is
        done."""
        problem, config, device = self._problem, self._config, self._device
        self._require_idle()
        peak_rates = asdict(device.peak_rates())
        reference = Reference(problem, config.size, config.precision, device)
        signature = reference.signature
        training = problem.gradient_policy != "none" and signature.differentiable
        if len(signature.float_inputs) + len(signature.weights) >= MAX_GRADIENTS:
            raise ProblemError(f"more than {MAX_GRADIENTS - 1} gradients cannot be compared")
        sliced = problem.in_slices and signature.sliced_rows is not None
        plan = plan_memory(
            signature,
            use_of(problem, reference, device.slice_elements if sliced else None, gradients=training),
            device.capacity(),
            sliced=sliced,
            gradients=training,
            limit=config.limits.device_memory_bytes,
            contexts=self._contexts,
            candidates=len(self._candidates),
        )
        if plan.lean and self._spare:
            raise DoesNotFit(f"{plan.describe()}, beside {self._spare} that wait for a larger session")
        for name, layout in plan.layouts.items():
            self._blocks[name] = create_block(layout, device.torch_device)
        for side in (*self._candidates, self._baseline):
            if device.asynchronous:
                side.gate = create_block(GATE, device.torch_device)
                side.gate.memory.zero_()
        source = InputSource(
            reference.get_inputs,
            device.torch_device,
            variants=problem.input_domain == "real" and not config.given_inputs_only,
            planter=planter_of(problem, config.precision, signature.rows, signature.outputs),
            ties=not signature.chooses,
        )
        self._context = SessionContext(
            problem=problem,
            config=config,
            device=device,
            baseline=self._baseline,
            reference=reference,
            tolerances=tolerances_as_stated(problem, config, signature),
            blocks=self._blocks,
            plan=plan,
            source=source,
            sampled={},
            training=training,
            deadline=self._deadline,
            calibrations=Calibrations() if self._kept is None else self._kept.calibrations,
            used_before=self._used_before,
            spare_bytes=self._spare * device.waiting_bytes,
            candidates=len(self._candidates),
            fault_context=self._fault_context,
            # A candidate that leaves work behind at each of its calls does so before a smaller share of all calls.
            interference=InterferenceMonitor(len(self._candidates)),
        )
        self._baseline_session = BaselineSession(self._context, self._candidates[0])
        for index, (side, outcome) in enumerate(zip(self._candidates, self._outcomes, strict=True)):
            outcome.details |= {
                "ceilings": peak_rates,
                "memory_plan": plan.describe(),
                "memory_planned_bytes": plan.peak_bytes,
            }
            self._candidate_sessions.append(
                CandidateSession(self._context, self._baseline_session, side, outcome, self._reporter(index))
            )
        self._active = tuple(self._candidate_sessions)

    def _require_idle(self) -> None:
        """Require an idle device. With other work on it, no figure of this evaluation would be valid."""
        if not _comes_true(self._device.is_idle):
            raise InfrastructureFault("the device is busy with something that is not part of this evaluation")

    def _run_stages(self) -> None:
        limits, sampling = self._config.limits, self._config.sampling
        with self._stage("loading"):
            begin = time.monotonic()
            for candidate_session in self._active:
                with self._attributing(candidate_session):
                    candidate_session.candidate.link.await_ready(
                        limits.load_s + limits.build_s, "importing the module", since=begin
                    )
            if self._kept is None:
                with self._baseline_faults("the reference does not import"):
                    self._baseline.link.await_ready(limits.load_s, "importing the reference")
        with self._stage("constructing"):
            self._construct()
        with self._stage("verifying"):
            for candidate_session in self._active:
                with self._attributing(candidate_session):
                    candidate_session.verify()
            others_wait = self._supervisor.quiesce()
        self._note_memory(coming=self._device.waiting_bytes * self._contexts if others_wait else 0)
        if sampling.max_samples:
            with self._stage("sampling"):
                for caller in (self._caller, *(candidate_session.caller for candidate_session in self._active)):
                    caller.exclusive = True
                if not self._device.asynchronous:
                    self._caller.decide_releases()
                forward = CallMode.FORWARD in self._context.sampled
                if forward:
                    self._sample_track(INFERENCE, self._active)
                if forward and sampling.warm_samples and self._fits_caches():
                    self._sample_track(INFERENCE_WARM, self._active)
                trained = [each for each in self._active if each.outcome.gradients is Gradients.MATCH]
                if trained and CallMode.BACKWARD in self._context.sampled:
                    self._sample_track(TRAINING, trained)
        for candidate_session in self._active:
            candidate_session.outcome.note_verdict(Verdict.PASSED)
            if len(self._candidate_sessions) > 1:
                candidate_session.outcome.details["together"] = len(self._candidate_sessions)

    def _construct(self) -> None:
        """Have the models constructed, side by side with the reference; then show them the shared memory. The baseline
        sees it and is called first, before any candidate can have changed it."""
        seed = secrets.randbits(63)
        limits, reference = self._config.limits, self._context.reference
        signature = reference.signature
        message = {
            "seed": seed,
            "device": str(self._device.torch_device),
            "precision": self._config.precision,
            "products": signature.products,
            "weights": bool(signature.weights),
        }
        begin = time.monotonic()
        if self._kept is None:
            with self._baseline_faults("the reference does not construct"):
                self._baseline.link.begin_construct(message)
        for candidate_session in self._active:
            with self._attributing(candidate_session):
                candidate_session.candidate.link.begin_construct(message)
        reference.construct(seed, self._baseline.freezer.processors)
        self._context.vary()
        varied = self._context.variation.each
        reference.set_state(varied)
        self._context.find_repeats()
        self._choose_inputs()
        self._context.write_weights()
        if self._kept is None:
            with self._baseline_faults("the reference does not construct"):
                self._baseline.link.await_ready(max(limits.construct_s, _REFERENCE_S), "constructing the reference")
        for candidate_session in self._active:
            with self._attributing(candidate_session):
                candidate_session.candidate.link.await_ready(
                    limits.construct_s + limits.late_build_s,
                    "constructing ModelNew",
                    since=begin if len(self._candidate_sessions) > 1 else None,
                )
        for side in (*self._candidates, self._baseline):
            side.stop()
        if self._device.asynchronous:  # on a CPU nothing is compared with an idle device
            self._supervisor.stop_starting()
        if not _comes_true(self._device.is_idle):
            raise DeviceBusy("the device was busy while every process was stopped, before any call was made")
        shared = {
            "baseline": "eager",
            "load_weights": False,
            "readable": True,
            "possible_state": ANY_OUTPUT,
            "inputs": [value if isinstance(value, dict) else None for value in signature.inputs],
            "weight_names": self._context.weight_names,
            "weight_count": len(signature.weights),
        }
        with self._baseline_faults("the reference does not construct"), _running(self._baseline):
            self._baseline.link.share(
                # A reused baseline was constructed under another seed.
                shared | {"baseline": self._config.baseline, "load_weights": self._kept is not None or bool(varied)},
                self._blocks_of(self._baseline),
                max(limits.construct_s, _REFERENCE_S),
            )
        if not self._baseline.can_be_read(self._device.torch_device):
            # The same for both sides, or only the candidate's time would contain the copying.
            shared["readable"] = False
            self._caller.deliver_in_call(self._baseline)
            for outcome in self._outcomes:
                outcome.note_once([_DELIVERED_WITHIN])
        if self._config.sampling.max_samples:
            self._caller.calibrate(CallMode.FORWARD)
            if self._context.training and self._config.sampling.gradient_trials:
                self._caller.calibrate(CallMode.BACKWARD)
        if self._config.baseline in PLAIN_BASELINES and self._baseline.kept:  # others may return copies of their state
            shared["possible_state"] = reduce(operator.or_, self._baseline.kept.values())
        self._held_before = self._device.foreign_bytes()
        self._supervisor.allow_device_use()
        for candidate_session in self._active:
            candidate_session.candidate.possible_state = shared["possible_state"]
            # The candidate now compares its own weights with these, which have their constructed values.
            shown = self._context.weights_shown(self._context.variation.initial)
            with self._attributing(candidate_session), shown, _running(candidate_session.candidate):
                candidate_session.candidate.link.share(
                    shared, self._blocks_of(candidate_session.candidate), limits.call_s
                )

    def _choose_inputs(self) -> None:
        """Decide what is planted in mixed inputs, and the kind of inputs of timed calls. A mode without a conclusive
        kind is not timed."""
        common, sampling, slices = self._context, self._config.sampling, self._candidate_sessions[0].slices
        with self._attributing(*self._active):  # the memory may be a candidate's
            if self._candidate_sessions[0].takes_rows_apart:
                require_slices(common.reference, common.source)
            note = settle_tolerances(common, slices[0])
        for outcome in self._outcomes:
            outcome.details["tolerances"] = asdict(common.tolerances)
            outcome.note_once([note] if note else [])
        modes = [CallMode.FORWARD]
        if common.training and sampling.gradient_trials:
            modes.append(CallMode.BACKWARD)
        if common.problem_key in USUAL_PROBLEMS:
            common.sampled = usual_kinds(common.source, modes) if sampling.max_samples else {}
            return
        is_finite = partial(common.reference.is_finite_on, gradients=CallMode.BACKWARD in modes, slices=slices)
        with self._attributing(*self._active):  # the memory may be a candidate's
            usual = common.source.plant_what_stays_finite(common.reference.signature.input_tensors, is_finite)
        if not sampling.max_samples:
            return
        kinds = timed_kinds(common.reference, common.source, slices[0], modes)
        # In float16 slightly larger values are infinite, so this is checked each time.
        USUAL_PROBLEMS.note(
            common.problem_key, usual=usual and kinds.usual and not common.reference.signature.overflows_soon
        )
        common.sampled = kinds.found
        for mode in modes:
            if mode not in common.sampled:
                for outcome in self._outcomes:
                    outcome.note_once(
                        [f"{mode.name.lower()}: no figure, since the reference is not finite on too much of any inputs"]
                    )

    def _blocks_of(self, side: Participant) -> dict[str, Block]:
        """Return the blocks for a side: the shared memory, and a gate that no other side can touch."""
        return self._blocks if side.gate is None else {**self._blocks, "gate": side.gate}

    def _fits_caches(self) -> bool:
        """Whether the content of the caches makes a difference."""
        moved = sum(self._blocks[name].layout.size_bytes for name in ("inputs", "weights", "outputs"))
        return moved <= _WARM_CACHES * self._device.cache_bytes

    def _sample_track(self, track: Track, judged: Sequence[CandidateSession]) -> None:
        """Record the figures of one track, for all candidates that it is measured for."""
        if self._context.plan.lean:
            # Each side then takes its memory in one block, which must not come on top of what it holds in several.
            self._caller.release_memory(self._baseline)
            for candidate_session in judged:
                with self._attributing(candidate_session):
                    candidate_session.caller.release_memory(candidate_session.candidate)
        asking: dict[CandidateSession, tuple[Sampling, int]] = {}
        for candidate_session in judged:
            with self._attributing(candidate_session):
                sampling = candidate_session.measure(track)
                asking[candidate_session] = sampling, next(sampling)
        while asking:
            order: list[CandidateSession | None]
            order = [*asking, None]
            if len(self._candidate_sessions) > 1:
                self._random.shuffle(order)  # no candidate knows which side follows it
            elif next(number for _, number in asking.values()) % 2:
                order.reverse()
            pairs = self._round(track, order)
            for candidate_session in list(asking):
                sampling, _ = asking.pop(candidate_session)
                if candidate_session not in pairs:
                    continue
                with self._attributing(candidate_session):
                    try:
                        asking[candidate_session] = sampling, sampling.send(pairs[candidate_session])
                    except StopIteration as stop:
                        candidate_session.measure_memory()  # an allocator keeps all memory that it was given once
                        candidate_session.record(track, stop.value)

    def _round(self, track: Track, order: Sequence[CandidateSession | None]) -> dict[CandidateSession, Pair]:
        """Make one call of each side on inputs of the same kind, in this order; ``None`` is the baseline."""
        calls: dict[CandidateSession, TimedCall] = {}
        theirs: TimedCall | None = None
        first: set[CandidateSession] = set()
        for candidate_session in order:
            if candidate_session is None:
                theirs, first = self._baseline_session.sample(track), set(calls)
            else:
                with self._attributing(candidate_session):
                    calls[candidate_session] = candidate_session.sample(track)
        assert theirs is not None
        return {
            candidate_session: Pair(call, theirs, candidate_session in first)
            for candidate_session, call in calls.items()
        }

    def _fault_context(self, side: Participant) -> contextlib.AbstractContextManager[None]:
        return self._baseline_faults("the reference fails") if side is self._baseline else contextlib.nullcontext()

    def _note_memory(self, *, coming: int) -> None:
        """Note the peaks of the allocators. For a single candidate, also note the growth of the device's memory since
        before, without the ``coming`` bytes."""
        grown = (
            max(0, self._device.foreign_bytes() - self._held_before - coming)
            if len(self._candidate_sessions) == 1
            else None
        )
        for candidate_session in self._active:
            candidate_session.note_memory(baseline_peak_bytes=self._caller.peak_bytes["baseline"], grown_bytes=grown)

    def _attribute_memory(self, message: str) -> None:
        """Attribute the judge's or baseline's lack of memory, for which the plan has room. Either a candidate holds the
        memory, or the plan is wrong, which raises ``DoesNotFit``."""
        plan: MemoryPlan = self._context.plan
        used = self._context.used_bytes
        held = 0 if self._kept is None else self._kept.held_bytes  # the plan has room for these bytes as well
        ours = self._used_before - held + plan.peak_bytes - (0 if plan.lean else plan.runner_bytes)
        if used - ours <= plan.runner_bytes or len(self._candidate_sessions) > 1:
            raise DoesNotFit(f"the plan of {plan.describe()} was not enough: {message}") from None
        self._outcomes[0].note_verdict(
            Verdict.OUT_OF_MEMORY,
            f"the candidate holds so much memory that none is left for its reference: {used / 2**30:.1f} GiB of "
            f"{self._device.total_bytes() / 2**30:.1f} GiB are in use, planned were {plan.describe()}",
        )

    def _reporter(self, index: int) -> Callable[[str, str, float | None], None]:
        def report(stage: str, message: str, share: float | None) -> None:
            self._supervisor.progress(index, stage, message, share)

        return report

    @contextlib.contextmanager
    def _stage(self, name: str) -> Iterator[None]:
        """Time a stage, and attribute its time to all candidates in equal parts."""
        for index, outcome in enumerate(self._outcomes):
            outcome.stage = name
            self._supervisor.progress(index, name, "", None)
        begin = time.monotonic()
        try:
            yield
        finally:
            seconds = (time.monotonic() - begin) / len(self._outcomes)
            for outcome in self._outcomes:
                outcome.stage_s[name] = seconds

    @contextlib.contextmanager
    def _attributing(self, *judged: CandidateSession) -> Iterator[None]:
        """Attribute errors to ``judged``, which are out of the running then. Raises ``_Over`` where no candidate is
        left, or others may have been affected."""
        outcomes = [each.outcome for each in judged]
        try:
            yield
        except Concluded:
            pass
        except RunnerFailed as error:
            _note(outcomes, _VERDICTS.get(error.failure, Verdict.RUNTIME_ERROR), error.text)
        except RunnerTimeout as error:
            _note(outcomes, Verdict.TIMEOUT, str(error))
        except Violation as error:
            _note(outcomes, Verdict.REJECTED, str(error))
            for outcome in outcomes:
                # A GPU's judge has a processor of its own.
                outcome.device_was_busy = isinstance(error, DeviceBusy)
                outcome.clocks_disagree = isinstance(error, ClocksDisagree) and not self._device.asynchronous
        except torch.OutOfMemoryError as error:
            self._attribute_memory(str(error))
        except RunnerGone:
            _note(outcomes, None, "")
        else:
            return
        self._active = tuple(each for each in self._active if each not in judged)
        if not self._active or any(outcome.verdict not in HARMLESS for outcome in outcomes):
            raise _Over

    @contextlib.contextmanager
    def _baseline_faults(self, what: str) -> Iterator[None]:
        """Treat errors of the baseline's runner as ours, not the candidates'. Raises ``ProblemError`` or
        ``InfrastructureFault``."""
        try:
            yield
        except RunnerFailed as error:
            if error.failure is Failure.OUT_OF_MEMORY:
                self._attribute_memory(str(error))
                raise _Over from None
            raise ProblemError(f"{what}: {error}") from error
        except RunnerTimeout as error:
            raise ProblemError(f"{what}: {error}") from error
        except RunnerGone as error:
            raise InfrastructureFault(f"{what}: its process ended") from error


@contextlib.contextmanager
def _running(side: Participant) -> Iterator[None]:
    """Let the processes of ``side`` run, and stop them again at the end."""
    side.freezer.thaw()
    with side.stopped_afterwards():
        yield


def _note(outcomes: Sequence[Outcome], verdict: Verdict | None, message: str) -> None:
    for outcome in outcomes:
        outcome.note_verdict(verdict, message)


def _comes_true(condition: Callable[[], bool]) -> bool:
    """Whether ``condition`` holds within a few seconds."""
    deadline = time.monotonic() + _CLEAN_S
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(_CLEAN_POLL_S)
    return True
