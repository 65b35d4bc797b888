"""Finds what fell by the wayside: lost workers' submissions, and bells that were not heard."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection
from types import TracebackType
from typing import Self

from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session, sessionmaker

from storage import workers
from storage.claims import Claims
from storage.models import Stage
from storage.settings import Settings

__all__ = ["Reconciler"]

_log = logging.getLogger(__name__)


class Reconciler:
    """A thread of every worker that reconciles every ``settings.reconcile_s`` and sends its heartbeat.

    ``queues``: what this worker takes (stage, kind of device); only there it rings again, so that
    queues without a worker do not fill up.
    """

    def __init__(
        self,
        settings: Settings,
        sessions: sessionmaker[Session],
        *,
        worker: str,
        queues: Collection[tuple[Stage, str]],
        current_submission: Callable[[], str | None],
    ) -> None:
        self._settings = settings
        self._sessions = sessions
        self._worker = worker
        self._queues = queues
        self._current_submission = current_submission
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="reconciler", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()

    def reconcile(self) -> None:
        """One pass."""
        with self._sessions.begin() as session:
            workers.heartbeat(session, self._worker, self._current_submission())
            workers.forget_silent(session)
            claims = Claims(session)
            released = claims.release_expired(self._settings.max_attempts)
            bells = claims.ring_overdue(self._queues)
        if released:
            _log.warning("took %d submissions from workers that were lost", released)
        if bells:
            _log.info("rang again for %d submissions", len(bells))

    def _run(self) -> None:
        while True:
            try:
                self.reconcile()
            except SQLAlchemyError:
                _log.warning("could not reconcile; trying again", exc_info=True)
            if self._ended.wait(self._settings.reconcile_s):
                return
