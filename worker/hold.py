"""Holding a claim while the work is done."""

from __future__ import annotations

import logging
import threading
import time
from types import TracebackType
from typing import Final, Self

from sqlalchemy.orm import Session, sessionmaker

from evaluator.engine import Progress
from storage.claims import Claim, Claims

__all__ = ["Hold"]

_TICK_S: Final = 0.5

_log = logging.getLogger(__name__)


class Hold:
    """Renews a claim's lease from a thread of its own, shows progress, and notices that it is gone.

    The thread that evaluates never waits for the database: it leaves its progress here.
    """

    def __init__(
        self,
        sessions: sessionmaker[Session],
        readers: sessionmaker[Session],
        claim: Claim,
        *,
        lease_s: float,
        stopping: threading.Event,
    ) -> None:
        self._sessions = sessions
        self._readers = readers
        self._claim = claim
        self._lease_s = lease_s
        self._stopping = stopping
        self._lost = threading.Event()
        self._ended = threading.Event()
        self._progress: Progress | None = None
        self._thread = threading.Thread(target=self._keep, name=f"hold {claim.submission_id}", daemon=True)

    @property
    def lost(self) -> bool:
        """Whether the claim is gone: the lease expired, or somebody cancelled the submission."""
        return self._lost.is_set()

    def over(self) -> bool:
        """Whether to stop working: the claim is gone, or the worker is being stopped."""
        return self.lost or self._stopping.is_set()

    def show(self, progress: Progress) -> None:
        """Have ``progress`` shown soon."""
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
                        held = Claims(session).holds(self._claim)
            except Exception:  # noqa: BLE001 - whatever it is, a thread that ended would lose the claim in silence
                _log.warning(
                    "%s: could not look after the claim; trying again", self._claim.submission_id, exc_info=True
                )
                continue
            if not held and not self._ended.is_set():
                self._lost.set()

    def _renew(self, progress: Progress | None) -> bool:
        report = None if progress is None else (progress.stage, progress.message, progress.share)
        with self._sessions.begin() as session:
            return Claims(session).renew(self._claim, self._lease_s, report)
