"""An application reached without a network, for clients that are not asynchronous."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator

import httpx
from anyio.from_thread import BlockingPortal, start_blocking_portal
from fastapi import FastAPI


class AppTransport(httpx.BaseTransport):
    """Hands requests to ``app`` on the event loop behind ``portal``. Answers come whole, not in parts."""

    def __init__(self, app: FastAPI, portal: BlockingPortal) -> None:
        self.app = app
        self._portal = portal

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        return self._portal.call(self._answer, request)

    async def _answer(self, request: httpx.Request) -> httpx.Response:
        assert isinstance(request.stream, httpx.SyncByteStream)
        outgoing = httpx.Request(request.method, request.url, headers=request.headers, content=_async(request.stream))
        answer = await httpx.ASGITransport(self.app).handle_async_request(outgoing)
        content = await answer.aread()
        return httpx.Response(answer.status_code, headers=answer.headers, content=content, request=request)


@contextlib.contextmanager
def running(app: FastAPI) -> Iterator[AppTransport]:
    """Runs ``app`` with its lifespan on an event loop of its own."""
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(app.router.lifespan_context(app)),
    ):
        yield AppTransport(app, portal)


async def _async(chunks: httpx.SyncByteStream) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk
