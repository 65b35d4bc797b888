"""A cache of answers that are the same for all callers within a moment.

Leaderboards are read by many and cost the most to draw. All callers without a key see the same, so one answer serves
all of them. A caller with a key gets an answer of its own, which shows its latest changes.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field
from typing import Final

from fastapi import Response
from fastapi.responses import StreamingResponse

__all__ = ["ResponseCache"]

_MOST: Final = 64
_MAX_BYTES: Final = 2**19


@dataclass
class _Kept:
    """An answer since it was requested.

    ``made`` is set once the answer is there, has failed with ``fault``, was ``left`` by the request that made it, or
    cannot be shared.
    """

    asked_at: float
    made: asyncio.Event = field(default_factory=asyncio.Event)
    fault: Exception | None = None
    left: bool = False
    body: bytes | None = None
    headers: tuple[tuple[bytes, bytes], ...] = ()


class ResponseCache:
    """Answers of up to ``age_s``, at most 32 MiB in all. They belong to one event loop."""

    def __init__(self, age_s: float, *, now: Callable[[], float] = time.monotonic) -> None:
        self._age_s = age_s
        self._now = now
        # They are in the order of their requests, so that the oldest come first.
        self._kept: dict[Hashable, _Kept] = {}

    async def get(self, key: Hashable, make: Callable[[], Awaitable[Response]]) -> Response:
        """Return the answer for ``key`` that was made a moment ago or is being made, else that of ``make``.

        Raises the exceptions of ``make``.
        """
        if not self._age_s:
            return await make()
        now = self._now()
        kept = self._kept.get(key)
        if kept is None or now - kept.asked_at >= self._age_s:
            return await self._make(key, now, make)
        await kept.made.wait()
        if kept.fault is not None:
            # Other requests would fail in the same way at this moment. A database that is away is not queried by all of
            # them at once.
            raise kept.fault.with_traceback(None)
        if kept.left:
            return await self.get(key, make)
        if kept.body is None:
            return await make()
        answer = Response(kept.body)
        answer.raw_headers = list(kept.headers)
        return answer

    async def _make(self, key: Hashable, now: float, make: Callable[[], Awaitable[Response]]) -> Response:
        self._kept.pop(key, None)
        self._make_room(now)
        kept = self._kept[key] = _Kept(now)
        try:
            answer = await make()
            if _is_for_all(answer):
                # The headers are copied, because the middleware adds headers of this request alone.
                kept.body, kept.headers = bytes(answer.body), tuple(answer.raw_headers)
        except asyncio.CancelledError:
            kept.left = True
            raise
        except Exception as fault:
            kept.fault = fault
            raise
        finally:
            if kept.body is None and self._kept.get(key) is kept:
                del self._kept[key]
            kept.made.set()
        return answer

    def _make_room(self, now: float) -> None:
        for key, oldest in list(self._kept.items()):
            if len(self._kept) < _MOST and now - oldest.asked_at < self._age_s:
                return
            del self._kept[key]


def _is_for_all(answer: Response) -> bool:
    return answer.status_code == 200 and not isinstance(answer, StreamingResponse) and len(answer.body) <= _MAX_BYTES
