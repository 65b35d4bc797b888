"""The work of a task: claim, build, evaluate or diagnose, record.

A message that arrives twice changes nothing, because the second claim finds nothing. No transaction is open while the
engine works. One task may evaluate several submissions of the same kind together (see ``worker.together``).
"""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, Protocol, TypeVar

from sqlalchemy.exc import InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as NoConnection
from sqlalchemy.orm import Session, sessionmaker

from evaluator import logs
from evaluator.candidates.candidate import Candidate
from evaluator.config import DEVICE_KINDS, EvalConfig, SamplingPlan, parse_limits
from evaluator.diagnosis.findings import Diagnosis, Tool
from evaluator.engine import BuildReport, Callbacks, Progress, SandboxLayer
from evaluator.errors import (
    DeviceUnavailable,
    EvaluationCancelled,
    EvaluatorError,
    InfrastructureFault,
)
from evaluator.evaluation import Evaluation, Verdict
from evaluator.problems.problem import Problem
from evaluator.problems.vetting import Vetting
from evaluator.problems.vetting.run import vet
from runtime import tracing
from runtime.settings import Settings
from storage.grading.claims import Claim, Claims
from storage.grading.diagnoses import Diagnoses, DiagnosisClaim, evaluation_waits
from storage.grading.leases import LeaseQueue
from storage.models import Stage
from storage.queue.eligibility import DeviceCapabilities
from storage.queue.fair_order import AffinityStreak, GradingKey
from storage.vettings import record_vetting
from worker.busy import BusyClock
from worker.device_gate import DeviceGate
from worker.lease_keeper import AnyClaim, LeaseKeeper
from worker.spans import stages
from worker.together import GroupEngine, GroupRun, NotStarted

__all__ = ["Grader", "GradingEngine"]

_DATABASE_PATIENCE_S: Final = 60.0
_DETAIL_CHARACTERS: Final = 2000
_RECENT: Final = 16
_MIN_RECENT: Final = 4
_PASSING: Final = 0.6
"""The least share of passes among recent evaluations for evaluating several together.

An evaluation that does not pass gains nothing from the others. With the durations of its stages on an H200, several
together are quicker while more than about half of them pass.
"""
_DATABASE_AWAY: Final = (OperationalError, InterfaceError, NoConnection)
"""Errors of the connection to the database, which another machine, or this one in a minute, may well not get."""

_log = logging.getLogger(__name__)
_T = TypeVar("_T")

Record = Callable[[Session], bool]
"""A function that stores the result of the work; ``False``: the claim is gone."""


class GradingEngine(GroupEngine, Protocol):
    """The part of ``evaluator.engine.Engine`` that a grader needs."""

    @property
    def environment(self) -> Mapping[str, Any]: ...

    @property
    def layers(self) -> tuple[SandboxLayer, ...]: ...

    @property
    def process_ids(self) -> Mapping[str, int]: ...

    def start(self) -> None: ...

    def close(self) -> None: ...

    def build(
        self, problem: Problem, candidate: Candidate, config: EvalConfig, callbacks: Callbacks
    ) -> BuildReport: ...

    def evaluate(
        self, problem: Problem, candidate: Candidate, config: EvalConfig, callbacks: Callbacks
    ) -> Evaluation: ...

    @property
    def tools(self) -> frozenset[Tool]: ...

    def keeps_baseline(self, config: EvalConfig) -> bool: ...

    def start_ahead(self) -> None: ...

    def max_group_size(self, problem: Problem, config: EvalConfig) -> int: ...

    def diagnose(
        self,
        problem: Problem,
        candidate: Candidate,
        config: EvalConfig,
        tool: Tool,
        *,
        cancelled: Callable[[], bool] = ...,
    ) -> Diagnosis: ...


@dataclass(frozen=True)
class CancellableJudge:
    """The part of an engine that vetting needs; its evaluations end once ``cancelled`` is true."""

    engine: GradingEngine
    cancelled: Callable[[], bool]

    @property
    def environment(self) -> Mapping[str, Any]:
        return self.engine.environment

    def evaluate(self, problem: Problem, candidate: Candidate, config: EvalConfig) -> Evaluation:
        """Evaluate as the engine does. Raises ``EvaluationCancelled`` besides."""
        return self.engine.evaluate(problem, candidate, config, Callbacks(cancelled=self.cancelled))


class Grader:
    """A grader, which takes submissions through one stage each, on one engine.

    ``device`` is the device of the evaluations, with its ``device_capabilities`` and its ``gate``; all are ``None`` for
    a builder. ``stopping`` is set when the process is to end: then nothing more is claimed. Work in progress goes on
    until ``requeueing`` is set (by default ``stopping``), and then back to the queue.
    """

    def __init__(
        self,
        settings: Settings,
        sessions: sessionmaker[Session],
        readers: sessionmaker[Session],
        engine: GradingEngine,
        *,
        worker: str,
        device: str | None,
        stopping: threading.Event,
        requeueing: threading.Event | None = None,
        device_capabilities: DeviceCapabilities | None = None,
        gate: DeviceGate | None = None,
    ) -> None:
        self._settings = settings
        self._sessions = sessions
        self._readers = readers
        self._engine = engine
        self._worker = worker
        self._device = device
        self._stopping = stopping
        self._requeueing = requeueing or stopping
        self._device_capabilities = device_capabilities
        self._gate = gate
        self._current: set[str] = set()
        self._busy = BusyClock()
        self._run = AffinityStreak()
        self._passed: deque[bool] = deque(maxlen=_RECENT)

    @property
    def current_submission(self) -> str | None:
        """One of the submissions in progress, if there are any."""
        return next(iter(sorted(self._current)), None)

    @property
    def busy_s(self) -> float:
        """The seconds for which there has been work so far, however much of it at a time."""
        return self._busy.seconds

    def build(self) -> None:
        """Take the next submission through its build stage."""

        def work(claim: Claim, keeper: LeaseKeeper[Claim]) -> Record:
            config = self._limited(_config(claim, claim.device), claim)
            with stages(keeper.show) as show:
                report = self._engine.build(claim.problem, claim.candidate, config, Callbacks(show, keeper.over))
            evaluation = report.evaluation
            if evaluation is not None:
                _log.info("verdict: %s", evaluation.verdict)
                return lambda session: Claims(session).record_evaluation(claim, evaluation, failed_builds=report.failed)
            return lambda session: Claims(session).record_built(
                claim, seconds=report.seconds, log=report.log, builds=report.builds, failed_builds=report.failed
            )

        self._work(
            # Any machine builds for any kind of device.
            lambda session: self._next(session, "build", DEVICE_KINDS),
            lambda claim: self._work_on("build", Claims, claim, work),
        )

    def evaluate(self) -> None:
        """Take the next submission through its evaluation.

        Where the engine gains from it, others of the same kind are evaluated together with it.
        """
        device = self._device
        assert device is not None

        def take(session: Session) -> list[Claim] | None:
            first = self._next(session, "evaluate", [device.partition(":")[0]], self._run.preferred)
            if first is None:
                return None
            more = self._group_size(first, device) - 1
            return [
                first,
                *Claims(session).claim_with_affinity(first, more, self._settings.lease_s, self._device_capabilities),
            ]

        def alone(claim: Claim, keeper: LeaseKeeper[Claim]) -> Record:
            config = self._begin([claim], device)
            record = self._evaluate(
                partial(self._engine.evaluate, claim.problem, claim.candidate, config), claim, keeper
            )
            # A candidate that does not pass has no figures that a vetting could release.
            if claim.vetted or not self._passed[-1]:
                return record
            vetting = self._vet(claim, config, keeper)

            def record_both(session: Session) -> bool:
                record_vetting(session, vetting)
                return record(session)

            return record_both

        def work(claims: list[Claim]) -> None:
            if len(claims) == 1:
                self._work_on("evaluate", Claims, claims[0], alone)
            else:
                self._work_on_group(claims, self._begin(claims, device))

        self._work(take, work)

    def diagnose(self) -> None:
        """Run the next candidate to be diagnosed under its tool; stop as soon as a submission waits to be evaluated."""
        device, lease_s = self._device, self._settings.lease_s
        assert device is not None

        def work(claim: DiagnosisClaim, keeper: LeaseKeeper[DiagnosisClaim]) -> Record:
            for size in _sizes(claim):
                keeper.show(Progress("diagnosing", f"size {size}"))
                config = EvalConfig(device=device, size=size, precision=claim.precision)
                found = self._engine.diagnose(claim.problem, claim.candidate, config, claim.tool, cancelled=keeper.over)
                if found.faults or found.obstacle:
                    break
            return lambda session: Diagnoses(session).record(claim, found)

        self._work(
            lambda session: Diagnoses(session).claim_next(self._engine.tools, self._worker, lease_s),
            lambda claim: self._work_on(str(claim.tool), Diagnoses, claim, work, evaluation_waits),
        )

    def _next(
        self, session: Session, stage: Stage, devices: Collection[str], affinity: GradingKey | None = None
    ) -> Claim | None:
        _log.debug("%s: woken", stage)
        lease_s, device_capabilities = self._settings.lease_s, self._device_capabilities
        return Claims(session).claim_next(stage, devices, self._worker, lease_s, device_capabilities, affinity=affinity)

    def _group_size(self, claim: Claim, device: str) -> int:
        """Return the number of submissions like ``claim`` to evaluate together, itself included.

        It is one where too many of the latest candidates have not passed.
        """
        try:
            config = self._config(claim, device)
        except ValueError:  # recorded when the submission is worked on
            return 1
        if not claim.vetted:  # vetting is done once, with the first submission
            return 1
        if self._settings.max_attempts == 1:  # a candidate that ends this worker would end others for good
            return 1
        passed = list(self._passed)
        if len(passed) >= _MIN_RECENT and sum(passed) < _PASSING * len(passed):
            return 1
        return min(self._engine.max_group_size(claim.problem, config), self._run.remaining_for(claim.affinity))

    def _config(self, claim: Claim, device: str) -> EvalConfig:
        """Return the settings of the evaluation, which are the same for all submissions of one kind."""
        config = replace(_config(claim, device), compare_compiled=self._settings.compare_compiled)
        return self._limited(config, claim)

    def _limited(self, config: EvalConfig, claim: Claim) -> EvalConfig:
        ours = claim.problem.limits_here(parse_limits(self._settings.limits))
        return replace(config, limits=ours.lowered(parse_limits(claim.limits)))

    def _begin(self, claims: Sequence[Claim], device: str) -> EvalConfig:
        """Note submissions of one kind in the affinity streak; return the settings of their evaluation."""
        config = self._config(claims[0], device)
        self._run.note_claim(claims[0].affinity if self._engine.keeps_baseline(config) else None, len(claims))
        return config

    def _evaluate(
        self, evaluate: Callable[[Callbacks], Evaluation], claim: Claim, keeper: LeaseKeeper[Claim]
    ) -> Record:
        with stages(keeper.show) as show:
            evaluation = evaluate(Callbacks(show, keeper.over))
        _log.info("verdict: %s", evaluation.verdict)
        self._passed.append(evaluation.verdict is Verdict.PASSED)
        settings = self._settings
        return lambda session: Claims(session).record_evaluation(
            claim,
            evaluation,
            diagnose=settings.diagnose == "auto",
            verify=settings.verify_records == "auto",
            measure_again_s=settings.measure_again_s,
        )

    def _vet(self, claim: Claim, config: EvalConfig, keeper: LeaseKeeper[Claim]) -> Vetting:
        """Vet the problem before any figure of its first candidate is shown."""
        _log.info("%s is vetted at %s", claim.problem.id, claim.precision)

        def report(check: str, number: int, most: int) -> None:
            keeper.show(Progress("vetting", f"the problem: {check}", number / most))

        judge = CancellableJudge(self._engine, keeper.over)
        size = claim.problem.vetting_size
        return vet(claim.problem, judge, config.device, size, report, precision=claim.precision)

    def _work_on_group(self, claims: Sequence[Claim], config: EvalConfig) -> None:
        """Evaluate submissions together. A thread for each one keeps its lease and records its result."""

        def work(index: int, claim: Claim, keeper: LeaseKeeper[Claim]) -> Record:
            try:
                return self._evaluate(partial(together.evaluate, index), claim, keeper)
            except NotStarted as error:
                why = str(error)
                _log.info("given back: %s", why)
                return lambda session: Claims(session).release(claim, why)

        def attend(index: int, claim: Claim) -> None:
            try:
                self._work_on("evaluate", Claims, claim, partial(work, index))
            finally:
                together.leave(index)

        candidates = [claim.candidate for claim in claims]
        with (
            # The log lines of the engine's processes may be about any of them.
            logs.about(submission=" ".join(claim.submission_id for claim in claims)),
            ThreadPoolExecutor(len(claims), "together") as threads,
            GroupRun(self._engine, claims[0].problem, candidates, config) as together,
        ):
            working = [threads.submit(attend, index, claim) for index, claim in enumerate(claims)]
            together.run()
        errors = [error for error in (each.exception() for each in working) if error is not None]
        for error in errors[1:]:
            _log.error("not recorded", exc_info=error)
        if errors:
            raise errors[0]

    def _work(self, take: Callable[[Session], _T | None], work: Callable[[_T], None]) -> None:
        """Claim with ``take`` and do ``work`` on the claim, once the device gate allows it."""
        if self._stopping.is_set():
            return
        with nullcontext(True) if self._gate is None else self._gate.use() as fit:
            taken = self._persist(take) if fit else None
            if taken is not None:
                work(taken)

    def _work_on(
        self,
        what: str,
        lease_queue: Callable[[Session], LeaseQueue[Any, AnyClaim]],
        claim: AnyClaim,
        work: Callable[[AnyClaim, LeaseKeeper[AnyClaim]], Record],
        preempted: Callable[[Session], bool] | None = None,
    ) -> None:
        with (
            self._taken_up(claim, what),
            LeaseKeeper(
                self._sessions,
                self._readers,
                lease_queue,
                claim,
                lease_s=self._settings.lease_s,
                stopping=self._requeueing,
                preempted=preempted,
            ) as keeper,
        ):
            record = self._outcome(lease_queue, claim, keeper, work)
            if record is not None and not self._record(lease_queue, claim, record):
                _log.warning("the claim was lost or cancelled; the result is dropped")
        if not self._stopping.is_set():
            self._engine.start_ahead()

    @contextmanager
    def _taken_up(self, claim: AnyClaim, what: str) -> Iterator[None]:
        """Count the block as work on ``claim``, and give its log lines and its span the submission."""
        submission_id = claim.submission_id
        attributes = {
            "kerneljudge.submission": submission_id,
            "kerneljudge.problem": claim.problem.id,
            "kerneljudge.attempt": claim.attempt,
            "kerneljudge.worker": self._worker,
        }
        tracing.past_span(f"{what} wait", claim.traceparent, claim.queued_at, claim.claimed_at)
        with (
            self._busy.working(),
            logs.about(submission=submission_id),
            tracing.span(what, claim.traceparent, attributes),
        ):
            _log.info("%s: attempt %d of %s on %s", what, claim.attempt, self._worker, claim.problem.id)
            self._current.add(submission_id)
            begin = time.monotonic()
            try:
                yield
            finally:
                self._current.discard(submission_id)
                _log.info("%s: over after %.1f s", what, time.monotonic() - begin)

    def _outcome(
        self,
        lease_queue: Callable[[Session], LeaseQueue[Any, AnyClaim]],
        claim: AnyClaim,
        keeper: LeaseKeeper[AnyClaim],
        work: Callable[[AnyClaim, LeaseKeeper[AnyClaim]], Record],
    ) -> Record | None:
        """Do the work; return the function that records its result, or ``None`` where the claim is lost."""
        try:
            return work(claim, keeper)
        except EvaluationCancelled:
            if keeper.lost:
                _log.info("stopped: cancelled or lost")
                return None
            why = "an evaluation goes first" if keeper.preempted else "this worker is being stopped"
            _log.info("given back: %s", why)
            return lambda session: lease_queue(session).release(claim)
        except EvaluatorError as error:
            _log.warning("a fault of ours: %s", error)
            tracing.fault(error)
            if isinstance(error, InfrastructureFault | DeviceUnavailable):
                if self._gate is not None:
                    self._gate.fault(claim.submission_id, str(error))
                self._renew_engine()
            retriable = error.retriable
            return self._fault(lease_queue, claim, str(error), retriable=retriable)
        except Exception as error:  # noqa: BLE001 - a bug of ours is never the candidate's verdict
            _log.exception("unexpected")
            tracing.fault(error)
            return self._fault(lease_queue, claim, f"internal error: {type(error).__name__}: {error}", retriable=True)

    def _record(
        self, lease_queue: Callable[[Session], LeaseQueue[Any, AnyClaim]], claim: AnyClaim, record: Record
    ) -> bool:
        """Record the result of the work; if that fails, record a fault of ours with the reason."""
        try:
            return self._persist(record)
        except _DATABASE_AWAY:
            raise
        except Exception as error:  # noqa: BLE001 - else the lease would expire, and nobody learn why
            _log.exception("the result cannot be recorded")
            tracing.fault(error)
            # The driver's message alone: the statement, with all its data, is in the log.
            reason = str(getattr(error, "orig", None) or error)[:_DETAIL_CHARACTERS]
            detail = f"internal error: the result cannot be recorded: {type(error).__name__}: {reason}"
            return self._persist(self._fault(lease_queue, claim, detail, retriable=True))

    def _fault(
        self,
        lease_queue: Callable[[Session], LeaseQueue[Any, AnyClaim]],
        claim: AnyClaim,
        detail: str,
        *,
        retriable: bool,
    ) -> Record:
        limit = self._settings.max_attempts
        return lambda session: lease_queue(session).record_fault(claim, detail, retriable=retriable, max_attempts=limit)

    def _renew_engine(self) -> None:
        """Restart the engine after a fault of the machine, so that no old process is used again."""
        if self._device is None or self._stopping.is_set():
            return
        try:
            self._engine.close()
            self._engine.start()
        except EvaluatorError:
            _log.exception("the engine does not start again: this worker ends")
            signal.raise_signal(signal.SIGTERM)

    def _persist(self, operation: Callable[[Session], _T]) -> _T:
        """Run ``operation`` in a separate transaction; wait for a while for a database that cannot be reached."""
        deadline = time.monotonic() + _DATABASE_PATIENCE_S
        while True:
            try:
                with self._sessions.begin() as session:
                    return operation(session)
            except _DATABASE_AWAY:
                if time.monotonic() > deadline or self._requeueing.is_set():
                    raise
                _log.warning("the database is away; trying again", exc_info=True)
                time.sleep(1.0)


def _sizes(claim: DiagnosisClaim) -> tuple[str, ...]:
    """Return the sizes to run in order until there is a finding.

    After a device fault, the submission's size is the last, because a candidate may fault at a large size alone.
    """
    usual = claim.tool.usual_size(claim.problem.sizes, claim.size)
    return (usual, claim.size) if claim.faulted and usual != claim.size else (usual,)


def _config(claim: Claim, device: str) -> EvalConfig:
    return EvalConfig(
        device=device,
        size=claim.size,
        precision=claim.precision,
        baseline=claim.baseline,
        require_gradients=claim.require_gradients,
        sampling=SamplingPlan.usual(claim.device, claim.size),
    )
