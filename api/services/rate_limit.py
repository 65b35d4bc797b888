"""The limits of requests in a minute.

Each process counts the requests that it answers, and no request waits for the database. Every second, the counts are
added to a table that all processes share, and the sums come back. So a limit may be exceeded by the requests that
arrive at several processes within that second. Reading costs no write.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from fastapi import Request
from sqlalchemy.orm import Session, sessionmaker
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.http.errors import TooManyRequests
from storage.access.keys import Keys
from storage.access.quotas import add_requests, delete_expired

__all__ = ["Allowance", "AllowanceHeaders", "Meter"]

_INTERVAL_S: Final = 1.0
_FORGET_EVERY_S: Final = 3600.0
_MINUTE_S: Final = 60
_POLICY: Final = "minute"

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Allowance:
    """The rest of a limit, and the time until it begins anew."""

    limit: int
    remaining: int
    reset_s: int

    def headers(self) -> dict[str, str]:
        """Return it as headers of an answer, by the names of draft-ietf-httpapi-ratelimit-headers-10."""
        return {
            "RateLimit-Policy": f'"{_POLICY}";q={self.limit};w={_MINUTE_S}',
            "RateLimit": f'"{_POLICY}";r={self.remaining};t={self.reset_s}',
        }


@dataclass
class _Window:
    """One subject's requests in a minute: ``shared`` by all processes, ``pending`` here since the last exchange."""

    minute: int
    shared: int = 0
    pending: int = 0


class Meter:
    """A counter of requests by subject.

    ``charge`` is for the event loop; ``run`` is a task while the application lives.
    """

    def __init__(self, sessions: sessionmaker[Session], *, now: Callable[[], float] = time.time) -> None:
        self._sessions = sessions
        self._now = now
        self._windows: dict[str, _Window] = {}
        self._used: set[str] = set()
        self._forgotten_at = 0.0

    def charge(self, subject: str, limit: int) -> Allowance:
        """Count one request. Raises ``TooManyRequests``."""
        minute, second = divmod(int(self._now()), _MINUTE_S)
        window = self._windows.get(subject)
        if window is None or window.minute != minute:
            window = self._windows[subject] = _Window(minute)
        reset_s = _MINUTE_S - second
        if window.shared + window.pending >= limit:
            error = TooManyRequests(f"the limit is {limit} requests a minute", retry_after_s=reset_s)
            error.headers = {**(error.headers or {}), **Allowance(limit, 0, reset_s).headers()}
            raise error
        window.pending += 1
        return Allowance(limit, limit - window.shared - window.pending, reset_s)

    def note_use(self, key_id: str) -> None:
        """Note that a key was used. It is stored together with the counts."""
        self._used.add(key_id)

    async def run(self) -> None:
        """Exchange counts with the other processes, until cancelled."""
        while True:
            await asyncio.sleep(_INTERVAL_S)
            await self.exchange()

    async def exchange(self) -> None:
        """Add the counts of this process to the shared ones, and read the sums."""
        minute = int(self._now()) // _MINUTE_S
        # No limit refers to the counts of an earlier minute any more.
        self._windows = {subject: each for subject, each in self._windows.items() if each.minute == minute}
        counts = {subject: window.pending for subject, window in self._windows.items() if window.pending}
        used, self._used = self._used, set()
        if not counts and not used:
            return
        try:
            totals = await run_in_threadpool(self._write, minute, counts, used)
        except Exception:  # noqa: BLE001 - logged with its traceback, and tried again
            # A database that is away for a moment must not end the counting for good.
            _log.exception("could not exchange counts of requests")
            self._used |= used
            return
        for subject, total in totals.items():
            window = self._windows.get(subject)
            if window is not None and window.minute == minute:
                window.shared, window.pending = total, window.pending - counts[subject]

    def _write(self, minute: int, counts: dict[str, int], used: Collection[str]) -> dict[str, int]:
        with self._sessions.begin() as session:
            if self._now() - self._forgotten_at > _FORGET_EVERY_S:
                self._forgotten_at = self._now()
                delete_expired(session)
            Keys(session).used(used)
            return add_requests(session, datetime.fromtimestamp(minute * _MINUTE_S, UTC), counts)


class AllowanceHeaders:
    """A middleware that adds the rest of a limit to each answer, and keeps personal answers out of others' caches."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                state = Request(scope).state
                headers = MutableHeaders(scope=message)
                allowance: Allowance | None = getattr(state, "allowance", None)
                if allowance is not None:
                    headers.update(allowance.headers())
                if getattr(state, "personal", False):
                    headers["Cache-Control"] = "no-store"
            await send(message)

        await self._app(scope, receive, send_with_headers if scope["type"] == "http" else send)
