"""Requests over connections that stay open: the least of HTTP/1.1 that our answers need.

Whoever measures on the machine that is measured should take little of it: this is a sixth of what httpx takes.
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
    """What is asked for. ``path`` with its query."""

    method: str
    path: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""

    def encoded(self, host: str) -> bytes:
        """As it is sent."""
        headers = {"Host": host, "Accept": "*/*", **self.headers}
        if self.body:
            headers["Content-Length"] = str(len(self.body))
        lines = [f"{self.method} {self.path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
        return "\r\n".join([*lines, "", ""]).encode("ascii") + self.body


class KeptConnections:
    """Up to ``most`` connections to the server at ``url``, each for one request at a time."""

    def __init__(self, url: str, most: int) -> None:
        parts = urlsplit(url)
        assert parts.hostname is not None
        self._host, self._port = parts.hostname, parts.port
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        self._free = asyncio.Semaphore(most)

    async def ask(self, request: Request) -> int:
        """Send ``request``, read the whole answer, return its status. Raises ``OSError`` and ``EOFError``."""
        async with self._free, asyncio.timeout(_TIMEOUT_S):
            reader, writer = self._idle.pop() if self._idle else await asyncio.open_connection(self._host, self._port)
            try:
                writer.write(request.encoded(f"{self._host}:{self._port}"))
                status = await _read_answer(reader)
            except BaseException:
                # Nobody knows what of the answer is still to come.
                writer.close()
                raise
            self._idle.append((reader, writer))
            return status

    def close(self) -> None:
        """Close what nobody uses."""
        for _, writer in self._idle:
            writer.close()
        self._idle.clear()


async def _read_answer(reader: asyncio.StreamReader) -> int:
    head, *lines = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(b":") for line in lines)}
    # Every answer that is measured is made as a whole, and says how long it is.
    await reader.readexactly(int(headers[b"content-length"]))
    return int(head.split(b" ", 2)[1])
