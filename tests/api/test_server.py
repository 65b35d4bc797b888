"""What the web server takes over a connection, before the application sees anything of it."""

from __future__ import annotations

import contextlib
import http.client
import socket
import time
from collections.abc import Iterator
from itertools import chain, repeat
from typing import BinaryIO
from urllib.parse import urlsplit

import pytest

from tests.api.conftest import LiveServer

_PIECE = b"X-More: " + b"a" * 8000 + b"\r\n"
_MAX_SENT = 10_000_000
_GET = b"GET /healthz HTTP/1.1\r\nHost: x\r\n"
_POST = b"POST /api/v1/submissions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"


@contextlib.contextmanager
def connected(live: LiveServer) -> Iterator[socket.socket]:
    parts = urlsplit(live.url)
    with socket.create_connection((parts.hostname, parts.port), timeout=20) as connection:
        yield connection


def status_of_next(answers: BinaryIO) -> int:
    """Read one answer to its end."""
    status = int(answers.readline().split()[1])
    headers = http.client.parse_headers(answers)
    answers.read(int(headers["content-length"]))
    return status


def sent_until_refused(live: LiveServer, begin: bytes, piece: bytes) -> int:
    """How many bytes of ``begin`` and endless pieces are taken."""
    with connected(live) as connection:
        sent = 0
        with contextlib.suppress(OSError):
            for each in chain([begin], repeat(piece)):
                connection.sendall(each)
                sent += len(each)
                if sent > _MAX_SENT:
                    break
        return sent


@pytest.mark.parametrize(
    ("begin", "piece"),
    [
        (_GET, _PIECE),
        (_GET + b"X-Long: ", b"a" * 8000),
        (b"GET /", b"a" * 8000),
        (_POST + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n", _PIECE),
        (_POST + b"Transfer-Encoding: chunked\r\n\r\n2;", b"a" * 8000),
    ],
    ids=["many headers", "a long header", "a long address", "trailers", "an extension of a chunk"],
)
def test_a_head_has_an_end(live: LiveServer, begin: bytes, piece: bytes) -> None:
    # What the system's buffers hold was sent as well.
    assert sent_until_refused(live, begin, piece) < _MAX_SENT
    with connected(live) as connection:
        connection.sendall(_GET + b"\r\n")
        assert connection.recv(100).startswith(b"HTTP/1.1 200 OK\r\n")


def test_whoever_sends_too_long_a_head_is_told(live: LiveServer) -> None:
    with connected(live) as connection:
        connection.sendall(_GET + 9 * _PIECE)
        assert connection.recv(100).startswith(b"HTTP/1.1 400 Bad Request\r\n")


def test_a_long_body_and_many_requests_are_no_head(live: LiveServer) -> None:
    body = b" " * 500_000 + b"{}"
    with connected(live) as connection, connection.makefile("rb") as answers:
        for _ in range(3):
            connection.sendall(_POST + f"Content-Length: {len(body)}\r\n\r\n".encode() + body)
            assert status_of_next(answers) == 422
        for _ in range(30):
            connection.sendall(_GET + 7 * _PIECE + b"\r\n")
            assert status_of_next(answers) == 200


@pytest.mark.parametrize("at_once", [True, False], ids=["in one piece", "in two pieces"])
def test_a_body_is_no_request_where_an_upgrade_is_asked_for(live: LiveServer, *, at_once: bool) -> None:
    """Java's client asks for one each time."""
    smuggled = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
    asked = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAAA\r\n"
    head = _POST + asked + f"Content-Length: {len(smuggled)}\r\n\r\n".encode()
    with connected(live) as connection, connection.makefile("rb") as answers:
        for piece in [head + smuggled] if at_once else [head, smuggled]:
            connection.sendall(piece)
            time.sleep(0.1)
        assert status_of_next(answers) == 422, "it was read, and is no JSON"
        connection.sendall(_GET + b"Connection: close\r\n\r\n")
        assert answers.read().count(b"HTTP/1.1 ") == 1, "the one that was asked for last"


def test_trailers_are_no_headers(live: LiveServer) -> None:
    identity = b"a-trailer-of-ours"
    chunked = _POST + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nX-Request-ID: " + identity + b"\r\n\r\n"
    with connected(live) as connection:
        connection.sendall(chunked)
        answer = connection.recv(10_000)
    assert answer.startswith(b"HTTP/1.1 422")
    assert b"x-request-id: " in answer.lower()
    assert identity not in answer
