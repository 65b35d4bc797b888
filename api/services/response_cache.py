"""Answers that everybody gets alike, made once and given to all who ask for the same within a moment.

Boards are looked at by many and cost the most to draw. Whoever has no key sees what anybody sees, so one answer does
for all of them; whoever has a key is answered by himself, and finds what he has just changed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field
from typing import Final

from fastapi import Response
from fastapi.responses import StreamingResponse

__all__ = ["SharedAnswers"]

_MOST: Final = 64
_MOST_BYTES: Final = 2**19


@dataclass
class _Kept:
    """An answer since it was asked for. ``made`` is set once it is there, failed with ``fault``, was ``left`` by who
    made it, or turned out to be nobody else's."""

    asked_at: float
    made: asyncio.Event = field(default_factory=asyncio.Event)
    fault: Exception | None = None
    left: bool = False
    body: bytes | None = None
    headers: tuple[tuple[bytes, bytes], ...] = ()


class SharedAnswers:
    """Answers of up to ``age_s``, few enough and small enough for 32 MiB. Of one event loop."""

    def __init__(self, age_s: float, *, now: Callable[[], float] = time.monotonic) -> None:
        self._age_s = age_s
        self._now = now
        # In the order in which they were asked for, so that what is too old comes first.
        self._kept: dict[Hashable, _Kept] = {}

    async def get(self, key: Hashable, make: Callable[[], Awaitable[Response]]) -> Response:
        """What was made for ``key`` a moment ago, or is being made; else what ``make`` makes. Raises what that does."""
        if not self._age_s:
            return await make()
        now = self._now()
        kept = self._kept.get(key)
        if kept is None or now - kept.asked_at >= self._age_s:
            return await self._make(key, now, make)
        await kept.made.wait()
        if kept.fault is not None:
            # Whoever makes it now finds the same: a database that is away is not asked by everybody at once.
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
                # Copied: what surrounds the application adds headers of this request's own.
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
    return answer.status_code == 200 and not isinstance(answer, StreamingResponse) and len(answer.body) <= _MOST_BYTES
