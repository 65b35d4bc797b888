"""What a task does: claim, build or evaluate, record.

Doing it twice changes nothing: the second claim finds nothing to claim. No transaction is open while
the engine works.
"""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final, Protocol, TypeVar

from sqlalchemy.exc import InterfaceError, OperationalError
from sqlalchemy.orm import Session, sessionmaker

from evaluator.candidate import Candidate
from evaluator.config import EvalConfig
from evaluator.engine import BuildReport, Progress, SandboxLayer
from evaluator.errors import (
    DeviceUnavailable,
    EvaluationCancelled,
    EvaluatorError,
    InfrastructureFault,
)
from evaluator.evaluation import Evaluation
from evaluator.problem import Problem
from storage.claims import Claim, Claims
from storage.models import Stage
from storage.settings import Settings
from worker.hold import Hold

__all__ = ["Grader", "GradingEngine"]

_DATABASE_PATIENCE_S: Final = 60.0
_DETAIL_CHARACTERS: Final = 2000
_DATABASE_AWAY: Final = (OperationalError, InterfaceError)
"""What another machine, or this one in a minute, may well not have."""

_log = logging.getLogger(__name__)
_T = TypeVar("_T")


class GradingEngine(Protocol):
    """What a grader needs of ``evaluator.engine.Engine``."""

    @property
    def environment(self) -> Mapping[str, Any]: ...

    @property
    def layers(self) -> tuple[SandboxLayer, ...]: ...

    def start(self) -> None: ...

    def close(self) -> None: ...

    def build(
        self,
        problem: Problem,
        candidate: Candidate,
        config: EvalConfig,
        *,
        progress: Callable[[Progress], None] = ...,
        cancelled: Callable[[], bool] = ...,
    ) -> BuildReport: ...

    def evaluate(
        self,
        problem: Problem,
        candidate: Candidate,
        config: EvalConfig,
        *,
        progress: Callable[[Progress], None] = ...,
        cancelled: Callable[[], bool] = ...,
    ) -> Evaluation: ...


class Grader:
    """Takes submissions through one stage each, on one engine.

    ``device`` is the device that is evaluated on; ``None`` for a builder. ``stopping`` is set when the
    process is to end: what is in progress then goes back to the queue.
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
    ) -> None:
        self._settings = settings
        self._sessions = sessions
        self._readers = readers
        self._engine = engine
        self._worker = worker
        self._device = device
        self._stopping = stopping
        self._current: set[str] = set()

    @property
    def current_submission(self) -> str | None:
        """One of the submissions that are worked on, if any is."""
        return next(iter(sorted(self._current)), None)

    def build(self, submission_id: str) -> None:
        """Take a submission through its build stage."""

        def work(claim: Claim, hold: Hold) -> Callable[[Claims], bool]:
            config = _config(claim, claim.device)
            report = self._engine.build(claim.problem, claim.candidate, config, progress=hold.show, cancelled=hold.over)
            evaluation = report.evaluation
            if evaluation is not None:
                return lambda claims: claims.record_evaluation(claim, evaluation)
            return lambda claims: claims.record_built(claim, seconds=report.seconds, log=report.log)

        self._grade(submission_id, "build", work)

    def evaluate(self, submission_id: str) -> None:
        """Take a submission through its evaluation."""
        device = self._device
        assert device is not None

        def work(claim: Claim, hold: Hold) -> Callable[[Claims], bool]:
            config = replace(_config(claim, device), compare_compiled=self._settings.compare_compiled)
            evaluation = self._engine.evaluate(
                claim.problem, claim.candidate, config, progress=hold.show, cancelled=hold.over
            )
            return lambda claims: claims.record_evaluation(claim, evaluation)

        self._grade(submission_id, "evaluate", work)

    def _grade(self, submission_id: str, stage: Stage, work: Callable[[Claim, Hold], Callable[[Claims], bool]]) -> None:
        if self._stopping.is_set():
            return
        lease_s = self._settings.lease_s
        claim = self._persist(lambda claims: claims.claim(submission_id, stage, self._worker, lease_s))
        if claim is None:
            return
        _log.info("%s: %s, attempt %d", submission_id, stage, claim.attempt)
        self._current.add(submission_id)
        try:
            with Hold(self._sessions, self._readers, claim, lease_s=lease_s, stopping=self._stopping) as hold:
                record = self._outcome(claim, hold, work)
                if record is not None and not self._record(claim, record):
                    _log.warning("%s: the claim was lost or cancelled; the result is dropped", submission_id)
        finally:
            self._current.discard(submission_id)

    def _outcome(
        self, claim: Claim, hold: Hold, work: Callable[[Claim, Hold], Callable[[Claims], bool]]
    ) -> Callable[[Claims], bool] | None:
        """How to record what came of the work; ``None`` where there is nothing to record any more."""
        try:
            return work(claim, hold)
        except EvaluationCancelled:
            if hold.lost:
                _log.info("%s: stopped, cancelled or lost", claim.submission_id)
                return None
            _log.info("%s: given back, this worker is being stopped", claim.submission_id)
            return lambda claims: claims.release(claim)
        except EvaluatorError as error:
            _log.warning("%s: %s", claim.submission_id, error)
            if isinstance(error, InfrastructureFault | DeviceUnavailable):
                self._renew_engine()
            retriable = error.retriable
            return self._fault(claim, str(error), retriable=retriable)
        except Exception as error:  # noqa: BLE001 - a bug of ours is never the candidate's verdict
            _log.exception("%s: unexpected", claim.submission_id)
            return self._fault(claim, f"internal error: {type(error).__name__}: {error}", retriable=True)

    def _record(self, claim: Claim, record: Callable[[Claims], bool]) -> bool:
        """Record what came of the work; what cannot be recorded is a fault of ours, with its reason."""
        try:
            return self._persist(record)
        except _DATABASE_AWAY:
            raise
        except Exception as error:  # noqa: BLE001 - else the lease would expire, and nobody learn why
            _log.exception("%s: the result cannot be recorded", claim.submission_id)
            # The driver's own words: the statement, with all that it was to store, is in the log.
            reason = str(getattr(error, "orig", None) or error)[:_DETAIL_CHARACTERS]
            detail = f"internal error: the result cannot be recorded: {type(error).__name__}: {reason}"
            return self._persist(self._fault(claim, detail, retriable=True))

    def _fault(self, claim: Claim, detail: str, *, retriable: bool) -> Callable[[Claims], bool]:
        limit = self._settings.max_attempts
        return lambda claims: claims.record_fault(claim, detail, retriable=retriable, max_attempts=limit)

    def _renew_engine(self) -> None:
        """After a fault of the machine, evaluate nothing more on what is left of the old processes."""
        if self._device is None or self._stopping.is_set():
            return
        try:
            self._engine.close()
            self._engine.start()
        except EvaluatorError:
            _log.exception("the engine does not start again: this worker ends")
            signal.raise_signal(signal.SIGTERM)

    def _persist(self, operation: Callable[[Claims], _T]) -> _T:
        """Run ``operation`` in a transaction of its own; wait for a database that is away for a while."""
        deadline = time.monotonic() + _DATABASE_PATIENCE_S
        while True:
            try:
                with self._sessions.begin() as session:
                    return operation(Claims(session))
            except _DATABASE_AWAY:
                if time.monotonic() > deadline or self._stopping.is_set():
                    raise
                _log.warning("the database is away; trying again", exc_info=True)
                time.sleep(1.0)


def _config(claim: Claim, device: str) -> EvalConfig:
    return EvalConfig(
        device=device,
        size=claim.size,
        precision=claim.precision,
        baseline=claim.baseline,
        require_gradients=claim.require_gradients,
    )
