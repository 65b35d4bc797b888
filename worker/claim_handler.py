"""The way of a claim through a worker: taken, worked on while its lease is kept, recorded.

A message that arrives twice changes nothing, because the second claim finds nothing. No transaction is open while the
engine works.
"""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from contextvars import copy_context
from typing import Any, Final, Generic, TypeVar

from sqlalchemy.exc import InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as NoConnection
from sqlalchemy.orm import Session, sessionmaker

from evaluator import logs
from evaluator.engine import Callbacks
from evaluator.errors import (
    DeviceUnavailable,
    EvaluationCancelled,
    EvaluatorError,
    InfrastructureFault,
    public_text,
)
from runtime import tracing
from runtime.settings import Settings
from storage.grading.leases import LeaseQueue
from worker.busy import BusyClock
from worker.device_gate import DeviceGate
from worker.grading_engine import GradingEngine
from worker.lease_keeper import AnyClaim, LeaseKeeper
from worker.spans import stages

__all__ = ["ClaimHandler", "ClaimedWork", "Record"]

_DATABASE_PATIENCE_S: Final = 60.0
_STOPPING_PATIENCE_S: Final = 10.0
_DATABASE_AWAY: Final = (OperationalError, InterfaceError, NoConnection)
"""Errors of the connection to the database, which another machine, or this one in a minute, may well not get."""

_log = logging.getLogger(__name__)
_T = TypeVar("_T")

Record = Callable[[Session], bool]
"""A function that stores the result of the work; ``False``: the claim is gone."""


class ClaimHandler:
    """Takes claims for one engine, and leads each to its record. All tasks of one worker share it.

    ``device`` is the device of the engine, with its ``gate``; both are ``None`` for a builder. ``stopping`` is set when
    the process is to end: then nothing more is claimed. Work in progress goes on until ``requeueing`` is set (by
    default ``stopping``), and then back to the queue.
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
        gate: DeviceGate | None = None,
    ) -> None:
        self.settings = settings
        self.engine = engine
        self.worker = worker
        self.device = device
        self._sessions = sessions
        self._readers = readers
        self._stopping = stopping
        self._requeueing = requeueing or stopping
        self._gate = gate
        self._current: set[str] = set()
        self._busy = BusyClock()

    @property
    def current_submission(self) -> str | None:
        """One of the submissions in progress, if there are any."""
        return next(iter(sorted(self._current)), None)

    @property
    def busy_s(self) -> float:
        """The seconds for which there has been work so far, however much of it at a time."""
        return self._busy.seconds

    def take(self, claim: Callable[[Session], _T | None], work: Callable[[_T], None]) -> None:
        """Have ``claim`` claim something, and do ``work`` on that, once the device gate allows it."""
        if self._stopping.is_set():
            return
        with nullcontext(True) if self._gate is None else self._gate.use() as fit:
            taken = self.persist(claim) if fit else None
            if taken is not None:
                work(taken)
                if not self._stopping.is_set():
                    self.engine.start_ahead()

    def begin(
        self,
        what: str,
        lease_queue: Callable[[Session], LeaseQueue[Any, AnyClaim]],
        claim: AnyClaim,
        preempted: Callable[[Session], bool] | None = None,
    ) -> ClaimedWork[AnyClaim]:
        """Begin the work on ``claim``, which logs and traces call ``what``. ``preempted``: as for ``LeaseKeeper``."""

        def keeper() -> LeaseKeeper[AnyClaim]:
            return LeaseKeeper(
                self._sessions,
                self._readers,
                lease_queue,
                claim,
                lease_s=self.settings.lease_s,
                stopping=self._requeueing,
                preempted=preempted,
            )

        return ClaimedWork(self, what, lease_queue, claim, keeper)

    def persist(self, operation: Callable[[Session], _T]) -> _T:
        """Run ``operation`` in a separate transaction; wait for a while for a database that cannot be reached."""
        deadline, stopping = time.monotonic() + _DATABASE_PATIENCE_S, False
        while True:
            try:
                with self._sessions.begin() as session:
                    return operation(session)
            except _DATABASE_AWAY:
                if self._requeueing.is_set() and not stopping:
                    # A database that is restarted together with this worker is back in a moment. Without it the
                    # claim would be lost, and count as an attempt.
                    stopping, deadline = True, min(deadline, time.monotonic() + _STOPPING_PATIENCE_S)
                if time.monotonic() > deadline:
                    raise
                _log.warning("the database is away; trying again", exc_info=True)
                time.sleep(1.0)

    @contextmanager
    def working(self, submission_id: str) -> Iterator[None]:
        """Count the block as work on this submission."""
        with self._busy.working():
            self._current.add(submission_id)
            try:
                yield
            finally:
                self._current.discard(submission_id)

    def machine_fault(self, submission_id: str, detail: str) -> None:
        """Note a fault of the machine, and restart the engine, so that no old process is used again."""
        if self._gate is not None:
            self._gate.fault(submission_id, detail)
        if self.device is None or self._stopping.is_set():
            return
        try:
            self.engine.close()
            self.engine.start()
        except EvaluatorError:
            _log.exception("the engine does not start again: this worker ends")
            signal.raise_signal(signal.SIGTERM)


class ClaimedWork(Generic[AnyClaim]):
    """The work on one claim. Its lease is kept, and its logs and spans name it, from here to the end of ``finish``.

    ``callbacks`` are for the engine: they show the progress, and tell when to stop.
    """

    def __init__(
        self,
        handler: ClaimHandler,
        what: str,
        lease_queue: Callable[[Session], LeaseQueue[Any, AnyClaim]],
        claim: AnyClaim,
        keeper: Callable[[], LeaseKeeper[AnyClaim]],
    ) -> None:
        self._handler = handler
        self._lease_queue: Callable[[Session], LeaseQueue[Any, AnyClaim]] = lease_queue
        self._claim: AnyClaim = claim
        # One thread may begin several, and another finish them. Each has fields of log lines and a span of its own.
        self._context = copy_context()
        self._lasting = ExitStack()
        self._stages = ExitStack()
        self._keeper: LeaseKeeper[AnyClaim]
        self.callbacks = self._context.run(self._begin, what, keeper)

    def finish(self, work: Callable[[], Record]) -> None:
        """Do ``work`` and record its result. Called once. Raises the errors of a database that stays away."""
        self._context.run(self._finish, work)

    def _begin(self, what: str, keeper: Callable[[], LeaseKeeper[AnyClaim]]) -> Callbacks:
        with ExitStack() as lasting:
            lasting.enter_context(self._described(what))
            self._keeper = lasting.enter_context(keeper())  # made here, because its log lines are about the claim, too
            show = self._stages.enter_context(stages(self._keeper.show))
            self._lasting = lasting.pop_all()
        return Callbacks(show, self._keeper.over)

    def _finish(self, work: Callable[[], Record]) -> None:
        with self._lasting:
            with self._stages:
                record = self._outcome(work)
            if record is not None and not self._record(record):
                _log.warning("the claim was lost or cancelled; the result is dropped")

    @contextmanager
    def _described(self, what: str) -> Iterator[None]:
        """Count the block as work on the claim, and give its log lines and its span the submission."""
        claim, worker = self._claim, self._handler.worker
        attributes = {
            "kerneljudge.submission": claim.submission_id,
            "kerneljudge.problem": claim.problem.id,
            "kerneljudge.attempt": claim.attempt,
            "kerneljudge.worker": worker,
        }
        tracing.past_span(f"{what} wait", claim.traceparent, claim.queued_at, claim.claimed_at)
        with (
            logs.about(submission=claim.submission_id),
            tracing.span(what, claim.traceparent, attributes),
            self._handler.working(claim.submission_id),
        ):
            _log.info("%s: attempt %d of %s on %s", what, claim.attempt, worker, claim.problem.id)
            begin = time.monotonic()
            try:
                yield
            finally:
                _log.info("%s: over after %.1f s", what, time.monotonic() - begin)

    def _outcome(self, work: Callable[[], Record]) -> Record | None:
        """Do the work; return the function that records its result, or ``None`` where the claim is lost."""
        try:
            return work()
        except EvaluationCancelled:
            if self._keeper.lost:
                _log.info("stopped: cancelled or lost")
                return None
            why = "an evaluation goes first" if self._keeper.preempted else "this worker is being stopped"
            _log.info("given back: %s", why)
            return lambda session: self._lease_queue(session).release(self._claim)
        except EvaluatorError as error:
            _log.warning("a fault of ours: %s", error)
            tracing.fault(error)
            if isinstance(error, InfrastructureFault | DeviceUnavailable):
                self._handler.machine_fault(self._claim.submission_id, str(error))
            return self._fault(str(error), retriable=error.retriable)
        except Exception as error:  # noqa: BLE001 - a bug of ours is never the candidate's verdict
            _log.exception("unexpected")
            tracing.fault(error)
            return self._fault(f"internal error: {public_text(error)}", retriable=True)

    def _record(self, record: Record) -> bool:
        """Record the result of the work; if that fails, record a fault of ours with the reason."""
        try:
            return self._handler.persist(record)
        except _DATABASE_AWAY:
            raise
        except Exception as error:  # noqa: BLE001 - else the lease would expire without a reason
            _log.exception("the result cannot be recorded")
            tracing.fault(error)
            detail = f"internal error: the result cannot be recorded: {public_text(error)}"
            return self._handler.persist(self._fault(detail, retriable=True))

    def _fault(self, detail: str, *, retriable: bool) -> Record:
        limit = self._handler.settings.max_attempts
        return lambda session: self._lease_queue(session).record_fault(
            self._claim, detail, retriable=retriable, max_attempts=limit
        )
