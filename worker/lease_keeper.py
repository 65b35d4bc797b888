"""The lease of a claim, kept while the work is done."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextvars import copy_context
from types import TracebackType
from typing import Any, Final, Generic, Self, TypeVar

from sqlalchemy.orm import Session, sessionmaker

from evaluator.engine import Progress
from storage.grading.claims import Claim
from storage.grading.diagnoses import DiagnosisClaim
from storage.grading.leases import LeaseQueue

__all__ = ["AnyClaim", "LeaseKeeper"]

AnyClaim = TypeVar("AnyClaim", Claim, DiagnosisClaim)

_TICK_S: Final = 0.5

_log = logging.getLogger(__name__)


class LeaseKeeper(Generic[AnyClaim]):
    """A keeper that renews a claim's lease from a separate thread, shows progress, and notices a lost claim.

    The evaluating thread never waits for the database: it leaves its progress here. ``preempted`` tells whether other
    work goes first, for work that has to make room.
    """

    def __init__(
        self,
        sessions: sessionmaker[Session],
        readers: sessionmaker[Session],
        lease_queue: Callable[[Session], LeaseQueue[Any, AnyClaim]],
        claim: AnyClaim,
        *,
        lease_s: float,
        stopping: threading.Event,
        preempted: Callable[[Session], bool] | None = None,
    ) -> None:
        self._sessions = sessions
        self._readers = readers
        self._lease_queue: Callable[[Session], LeaseQueue[Any, AnyClaim]] = lease_queue
        self._claim: AnyClaim = claim
        self._preempted_by = preempted
        self._lease_s = lease_s
        self._stopping = stopping
        self._lost = threading.Event()
        self._preempted = threading.Event()
        self._ended = threading.Event()
        self._progress: Progress | None = None
        # In this thread's context, so that its log lines name the same submission.
        keep = copy_context().run
        self._thread = threading.Thread(
            target=keep, args=(self._keep,), name=f"hold {claim.submission_id}", daemon=True
        )

    @property
    def lost(self) -> bool:
        """Whether the claim is gone: the lease expired, or the submission was cancelled."""
        return self._lost.is_set()

    @property
    def preempted(self) -> bool:
        """Whether other work has come that goes first."""
        return self._preempted.is_set()

    def over(self) -> bool:
        """Whether to stop working: the claim is gone, other work goes first, or the worker is being stopped."""
        return self.lost or self.preempted or self._stopping.is_set()

    def show(self, progress: Progress) -> None:
        """Leave ``progress`` for the thread, which shows it soon."""
        self._progress = progress

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()

    def _keep(self) -> None:
        tick_s = min(_TICK_S, self._lease_s / 3)
        shown: Progress | None = None
        renewed = time.monotonic()
        while not self._ended.wait(tick_s) and not self.lost:
            progress = self._progress
            try:
                if progress is not shown or time.monotonic() - renewed > self._lease_s / 3:
                    held = self._renew(progress if progress is not shown else None)
                    shown, renewed = progress, time.monotonic()
                else:
                    with self._readers() as session:
                        held = self._lease_queue(session).holds(self._claim)
                if self._preempted_by is not None:
                    with self._readers() as session:
                        if self._preempted_by(session):
                            self._preempted.set()
            except Exception:  # noqa: BLE001 - whatever it is, a thread that ended would lose the claim in silence
                _log.warning("could not look after the claim; trying again", exc_info=True)
                continue
            if not held and not self._ended.is_set():
                self._lost.set()

    def _renew(self, progress: Progress | None) -> bool:
        report = None if progress is None else (progress.stage, progress.message, progress.share)
        with self._sessions.begin() as session:
            return self._lease_queue(session).renew(self._claim, self._lease_s, report)
