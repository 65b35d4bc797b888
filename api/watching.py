"""One eye on the database for everybody who waits.

However many clients wait, one task asks the database, once in ``interval_s`` and for all of them
together; a waiting client costs a future and no thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from starlette.concurrency import run_in_threadpool

from api.queries import Glance

__all__ = ["INTERVAL_S", "Watch", "Watcher"]

INTERVAL_S: Final = 0.1
_AFTER_FAULT_S: Final = 1.0

_log = logging.getLogger(__name__)


class Watch:
    """One client's view of one submission."""

    def __init__(self) -> None:
        self.latest: Glance | None = None
        self._changed = asyncio.Event()
        self._over = False

    async def change(self, timeout_s: float | None = None) -> Glance | None:
        """The newest state that this client has not seen; ``None`` after ``timeout_s`` or at shutdown."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()
        except TimeoutError:
            return None
        if self._over:
            return None
        self._changed.clear()
        return self.latest

    def show(self, glance: Glance) -> None:
        if glance != self.latest:
            self.latest = glance
            self._changed.set()

    def end(self) -> None:
        self._over = True
        self._changed.set()


class Watcher:
    """Looks at the submissions that somebody watches, and tells of changes.

    ``look`` is called in a thread. ``run`` is a task for as long as the application lives.
    """

    def __init__(
        self, look: Callable[[Collection[str]], Mapping[str, Glance]], *, interval_s: float = INTERVAL_S
    ) -> None:
        self._look = look
        self._interval_s = interval_s
        self._watches: defaultdict[str, set[Watch]] = defaultdict(set)
        self._wanted = asyncio.Event()
        self._closed = False

    @contextmanager
    def watch(self, submission_id: str) -> Iterator[Watch]:
        """Watches one submission while the block lasts."""
        watch = Watch()
        if self._closed:
            watch.end()
        self._watches[submission_id].add(watch)
        self._wanted.set()
        try:
            yield watch
        finally:
            self._watches[submission_id].discard(watch)
            if not self._watches[submission_id]:
                del self._watches[submission_id]

    async def until_final(self, submission_id: str, timeout_s: float) -> None:
        """Returns when the submission is over, after ``timeout_s``, or at shutdown."""
        deadline = asyncio.get_running_loop().time() + timeout_s
        with self.watch(submission_id) as watch:
            while (remaining := deadline - asyncio.get_running_loop().time()) > 0:
                glance = await watch.change(remaining)
                if glance is None or glance.final:
                    return

    def close(self) -> None:
        """Lets everybody who waits go at once, now and from now on."""
        self._closed = True
        for watches in self._watches.values():
            for watch in watches:
                watch.end()

    async def run(self) -> None:
        """Look, tell, sleep; until cancelled."""
        while True:
            await self._wanted.wait()
            if not self._watches:
                self._wanted.clear()
                continue
            try:
                seen = await run_in_threadpool(self._look, list(self._watches))
            except Exception:  # noqa: BLE001 - logged with its traceback, and tried again
                # A database that is away for a moment must not end the waiting of everybody for good.
                _log.exception("could not look at the submissions that are waited for")
                await asyncio.sleep(_AFTER_FAULT_S)
                continue
            for submission_id, glance in seen.items():
                for watch in self._watches.get(submission_id, ()):
                    watch.show(glance)
            await asyncio.sleep(self._interval_s)
