"""Connections with limits: a request's head comes in time, and a body or an answer does not stand still for long.

Uvicorn has a limit for idle connections alone. Half-sent requests would otherwise hold descriptors until none is left.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
import resource
import time
from collections.abc import Collection
from typing import Any, ClassVar, Final

import h11
from starlette.datastructures import Headers
from uvicorn.protocols.http.h11_impl import H11Protocol

from api.http.middleware import media_type

__all__ = ["BoundedProtocol", "close_stalled", "raise_descriptor_limit"]

_HEAD_S: Final = 10.0
_STILL_S: Final = 60.0
_STREAM_STILL_S: Final = 600.0
"""As long as a batch that arrives is kept without a line."""
_MOST: Final = 10_000
_KEPT_DESCRIPTORS: Final = 128
"""Descriptors that are not for clients: those of the database, the broker, files and the log."""
_SAID_AGAIN_S: Final = 60.0
_TOO_LATE: Final = b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"

_log = logging.getLogger(__name__)


class BoundedProtocol(H11Protocol):
    """Uvicorn's protocol, which notes since when a connection waits for its client.

    A connection beyond the number that this process has descriptors for replaces the one that waits longest for a
    request. There are never more than 10,000.
    """

    streamed: ClassVar[Collection[tuple[str, str]]] = ()
    """Path and media type of bodies that are worked on while they come. They may stand still for longer."""
    _said_at = float("-inf")

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._heard_at = time.monotonic()
        self._head_since: float | None = self._heard_at
        self._awaited_at = self._heard_at
        self._unsent = 0
        self._sent_at = self._heard_at

    @property
    def waits_for_request(self) -> bool:
        """Whether no request is being answered, down to the last byte of an answer."""
        answered = self.cycle is None or bool(self.cycle.response_complete)
        return answered and self.transport.get_write_buffer_size() == 0

    @property
    def is_open(self) -> bool:
        """Whether the connection is not being closed."""
        return not self.transport.is_closing()

    @property
    def heard_at(self) -> float:
        """The time of the client's last bytes, by the monotonic clock, in seconds."""
        return self._heard_at

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        """Take a connection, in the place of another one where there are too many."""
        super().connection_made(transport)
        if len(self.connections) <= _most_connections():
            return
        # One that was aborted stays in the set until the next turn of the loop.
        here = [each for each in self.connections if isinstance(each, BoundedProtocol) and each.is_open]
        waiting = [each for each in here if each.waits_for_request]  # this one among them
        beyond = len(here) - _most_connections()
        for each in heapq.nsmallest(beyond, waiting, key=lambda each: each.heard_at):
            each.transport.abort()
        now = time.monotonic()
        if beyond > 0 and now - BoundedProtocol._said_at > _SAID_AGAIN_S:
            BoundedProtocol._said_at = now
            _log.warning("there are %d connections: those that wait longest are closed", len(here))

    def data_received(self, data: bytes) -> None:
        """Take bytes from the client."""
        self._heard_at = time.monotonic()
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._head_since = None
        elif self._head_since is None and self.conn.trailing_data[0]:
            self._head_since = self._heard_at

    def close_if_stalled(self, now: float) -> None:
        """Close the connection if it has waited for its client for too long. ``now``: the monotonic clock, seconds."""
        if self._head_since is not None and now - self._head_since > _HEAD_S:
            if self.conn.trailing_data[0]:
                self.transport.write(_TOO_LATE)
            self.transport.close()
        elif self._body_stands_still(now) or self._answer_stands_still(now):
            self.transport.abort()

    def _body_stands_still(self, now: float) -> bool:
        awaited = self.conn.their_state is h11.SEND_BODY and not self.flow.read_paused
        if not awaited or self.conn.they_are_waiting_for_100_continue:
            # The client waits for us.
            self._awaited_at = now
            return False
        limit_s = _STREAM_STILL_S if self._is_streamed() else _STILL_S
        return now - max(self._heard_at, self._awaited_at) > limit_s

    def _is_streamed(self) -> bool:
        return (self.scope["path"], media_type(Headers(raw=self.headers))) in self.streamed

    def _answer_stands_still(self, now: float) -> bool:
        unsent = self.transport.get_write_buffer_size()
        if not unsent or unsent != self._unsent:
            self._unsent, self._sent_at = unsent, now
        return now - self._sent_at > _STILL_S


def close_stalled(connections: Collection[Any]) -> None:
    """Close each of ``connections`` that has waited for its client for too long."""
    now = time.monotonic()
    for each in tuple(connections):
        if isinstance(each, BoundedProtocol) and each.is_open:
            each.close_if_stalled(now)


def raise_descriptor_limit() -> None:
    """Let this process have as many descriptors as it may. A shell's usual limit is 1024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _most_connections() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(1, min(soft - _KEPT_DESCRIPTORS, _MOST)) if soft != resource.RLIM_INFINITY else _MOST
