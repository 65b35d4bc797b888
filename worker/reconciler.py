"""Repairs after failures elsewhere: submissions of lost workers, lost wake-ups, batches that came in only in part."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection

from sqlalchemy.orm import Session, sessionmaker

from kerneljudge.terms.findings import Tool
from runtime.settings import Settings
from storage.batches.batches import Batches
from storage.grading.claims import Claims
from storage.grading.diagnoses import Diagnoses
from storage.models import Stage
from storage.queue import workers
from storage.queue.eligibility import DeviceCapabilities
from storage.queue.workers import Condition
from worker.periodic import Periodic

__all__ = ["Reconciler"]

_log = logging.getLogger(__name__)


class Reconciler(Periodic):
    """A thread of every worker that reconciles every ``settings.reconcile_s`` and sends its heartbeat.

    ``queues``: the stages and kinds of device that this worker takes. ``tools``: the tools that it diagnoses with. It
    requests wake-ups for these alone, so that queues without a worker do not fill up. ``device_capabilities`` and
    ``condition``: those of its device. ``register`` registers this worker again after others have struck it off.
    """

    def __init__(
        self,
        settings: Settings,
        sessions: sessionmaker[Session],
        *,
        worker: str,
        queues: Collection[tuple[Stage, str]],
        current_submission: Callable[[], str | None],
        register: Callable[[Session], None],
        busy_s: Callable[[], float] = lambda: 0.0,
        tools: Collection[Tool] = (),
        device_capabilities: DeviceCapabilities | None = None,
        condition: Callable[[], Condition] = Condition,
    ) -> None:
        super().__init__("reconciler", settings.reconcile_s)
        self._settings = settings
        self._sessions = sessions
        self._worker = worker
        self._queues = queues
        self._tools = tools
        self._current_submission = current_submission
        self._busy_s = busy_s
        self._register = register
        self._device_capabilities = device_capabilities
        self._condition = condition
        self._passed_at: float | None = None
        self._lenient_until = 0.0

    def work(self) -> None:
        self.reconcile()

    def reconcile(self) -> None:
        """Do one pass."""
        with self._sessions.begin() as session:
            at = self._current_submission()
            if not workers.heartbeat(session, self._worker, at, self._condition(), self._busy_s()):
                _log.warning("this worker was struck off; it registers again")
                self._register(session)
            workers.delete_stale(session)
            claims, diagnoses = Claims(session), Diagnoses(session)
            released, limit, lease_s = 0, self._settings.max_attempts, self._settings.lease_s
            shortened = claims.shorten(lease_s) + diagnoses.shorten(lease_s)
            if not self._lenient():
                released = claims.release_expired(limit) + diagnoses.release_expired(limit)
                Batches(session).cancel_abandoned()
            claims.notify_waiting(self._queues, self._device_capabilities)
            diagnoses.notify_waiting(self._tools)
        self._passed_at = time.time()
        if shortened:
            _log.warning("the clock was set back: shortened %d leases", shortened)
        if released:
            _log.warning("took %d submissions or diagnoses from workers that were lost", released)

    def _lenient(self) -> bool:
        """Whether to release no expired leases now: the machine slept, or the database was away until just now.

        No worker could renew a lease meanwhile; living ones do so within a lease's time from now.
        """
        # By the wall clock, because the monotonic clock stops while a machine sleeps.
        now, settings = time.time(), self._settings
        if self._passed_at is not None and now - self._passed_at > settings.reconcile_s + settings.lease_s / 2:
            self._lenient_until = now + settings.lease_s
        # A clock that was set back meanwhile makes nobody lenient for longer.
        return now < self._lenient_until <= now + settings.lease_s
