"""One task that reads the database for all waiting clients.

It queries once in ``interval_s`` for all of them together, and less often where an answer takes long. A waiting client
costs a future and no thread. Where a cheap mark shows that nothing was committed meanwhile, the database is not
queried. Then the mark is read more often, so that a commit shows sooner.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, Generic, Protocol, TypeVar

from starlette.concurrency import run_in_threadpool

__all__ = ["INTERVAL_S", "Watch", "Watcher"]

INTERVAL_S: Final = 0.025
_MARK_POLL_S: Final = 0.01
_BUSY_SHARE: Final = 0.1
"""The largest share of the time that is spent on queries, ..."""
_LONGEST_REST_S: Final = 0.5
"""... but the pause is no longer than this, even if one answer takes seconds.

Clients must not wait long after a stall.
"""
_AFTER_FAULT_S: Final = 1.0

_log = logging.getLogger(__name__)


class Snapshot(Protocol):
    """The progress of something. Two snapshots are equal where there is nothing to report."""

    @property
    def final(self) -> bool: ...


AnySnapshot = TypeVar("AnySnapshot", bound=Snapshot)


class Watch(Generic[AnySnapshot]):
    """One client's view of one submission or batch."""

    def __init__(self) -> None:
        self.latest: AnySnapshot | None = None
        self._changed = asyncio.Event()
        self._over = False

    async def change(self, timeout_s: float | None = None) -> AnySnapshot | None:
        """Return the newest state that this client has not seen; ``None`` after ``timeout_s`` or at shutdown."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()
        except TimeoutError:
            return None
        if self._over:
            return None
        self._changed.clear()
        return self.latest

    def show(self, snapshot: AnySnapshot) -> None:
        if snapshot != self.latest:
            self.latest = snapshot
            self._changed.set()

    def end(self) -> None:
        self._over = True
        self._changed.set()


class Watcher(Generic[AnySnapshot]):
    """A watcher of submissions, or of batches, by their ids. It reports changes to the clients that watch them.

    ``query`` is called in a thread. ``mark`` has to return at once. It is the same while nothing that ``query`` sees
    can have changed, or ``None``. ``run`` is a task for as long as the application lives.
    """

    def __init__(
        self,
        query: Callable[[Collection[str]], Mapping[str, AnySnapshot]],
        *,
        interval_s: float = INTERVAL_S,
        mark: Callable[[], int | None] = lambda: None,
    ) -> None:
        self._query = query
        self._interval_s = interval_s
        self._mark = mark
        self._seen: int | None = None
        self._watches: defaultdict[str, set[Watch[AnySnapshot]]] = defaultdict(set)
        self._wanted = asyncio.Event()
        self._closed = False

    @contextmanager
    def watch(self, identity: str) -> Iterator[Watch[AnySnapshot]]:
        """Watch one of them while the block lasts."""
        watch: Watch[AnySnapshot] = Watch()
        if self._closed:
            watch.end()
        self._watches[identity].add(watch)
        self._seen = None
        self._wanted.set()
        try:
            yield watch
        finally:
            self._watches[identity].discard(watch)
            if not self._watches[identity]:
                del self._watches[identity]

    async def until_final(self, identity: str, timeout_s: float) -> None:
        """Return when it is over, after ``timeout_s``, or at shutdown."""
        deadline = asyncio.get_running_loop().time() + timeout_s
        with self.watch(identity) as watch:
            while (remaining := deadline - asyncio.get_running_loop().time()) > 0:
                snapshot = await watch.change(remaining)
                if snapshot is None or snapshot.final:
                    return

    def close(self) -> None:
        """Release all waiting clients at once, now and from now on."""
        self._closed = True
        for watches in self._watches.values():
            for watch in watches:
                watch.end()

    async def run(self) -> None:
        """Query, report and sleep, until cancelled."""
        while True:
            await self._wanted.wait()
            if not self._watches:
                self._wanted.clear()
                continue
            mark = self._mark()
            if mark is not None and mark == self._seen:
                await asyncio.sleep(min(self._interval_s, _MARK_POLL_S))
                continue
            # The mark is noted before the query, which may miss a commit that happens while it runs.
            self._seen = mark
            begin = time.monotonic()
            try:
                seen = await run_in_threadpool(self._query, list(self._watches))
            except Exception:  # noqa: BLE001 - logged with its traceback, and tried again
                # A database that is away for a moment must not end the waiting of all clients for good.
                _log.exception("could not query the submissions and batches that clients watch")
                self._seen = None
                await asyncio.sleep(_AFTER_FAULT_S)
                continue
            for identity, snapshot in seen.items():
                for watch in self._watches.get(identity, ()):
                    watch.show(snapshot)
            took_s = time.monotonic() - begin
            await asyncio.sleep(max(self._interval_s, min(_LONGEST_REST_S, took_s / _BUSY_SHARE - took_s)))
