"""A check that its callers share, so that many of them cost no more than one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from anyio import CapacityLimiter, to_thread

__all__ = ["SharedCheck"]

_AGE_S: Final = 1.0
_THREADS: Final = 4
"""Checks at once. One that was given up keeps its thread until it ends."""

_T = TypeVar("_T")


class SharedCheck(Generic[_T]):
    """Shares the check that runs, and its result for a second, also a failure. It belongs to one event loop.

    ``limit_s``: the longest time of a check.
    """

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._threads = CapacityLimiter(_THREADS)
        self._task: asyncio.Task[_T] | None = None
        self._ended_at = 0.0

    async def result(self, check: Callable[[], _T]) -> _T:
        """Return the result of ``check``, or of one that runs already or ended a moment ago.

        ``check`` is called in a thread. Raises its errors, and ``TimeoutError``.
        """
        task = self._task
        if task is None or (task.done() and time.monotonic() - self._ended_at >= _AGE_S):
            task = self._task = asyncio.create_task(self._run(check))
        # A caller that leaves does not take the result from the others.
        return await asyncio.shield(task)

    async def _run(self, check: Callable[[], _T]) -> _T:
        try:
            async with asyncio.timeout(self._limit_s):
                # In threads of its own, because those of the requests may all wait for a database that does not answer.
                return await to_thread.run_sync(check, abandon_on_cancel=True, limiter=self._threads)
        finally:
            self._ended_at = time.monotonic()
