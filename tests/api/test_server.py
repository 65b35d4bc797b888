"""What the web server takes over a connection, before the application sees anything of it."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import os
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import chain, repeat
from pathlib import Path
from typing import BinaryIO
from urllib.parse import urlsplit

import pytest
import uvicorn
from fastapi import FastAPI, Request

from api.http.protocol import BoundedProtocol, _most_connections
from evaluator.interpreter import python_environment
from tests.api.conftest import LiveServer
from tests.processes import wait_until

_PIECE = b"X-More: " + b"a" * 8000 + b"\r\n"
_MAX_SENT = 10_000_000
_GET = b"GET /healthz HTTP/1.1\r\nHost: x\r\n"
_POST = b"POST /api/v1/submissions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"


@contextlib.contextmanager
def connected(live: LiveServer) -> Iterator[socket.socket]:
    parts = urlsplit(live.url)
    with socket.create_connection((parts.hostname, parts.port), timeout=20) as connection:
        yield connection


def only_connection(live: LiveServer) -> BoundedProtocol:
    """Return the server's side of the only connection."""
    wait_until(lambda: len(live.server.server_state.connections) == 1, "the connection")
    (found,) = live.server.server_state.connections
    assert isinstance(found, BoundedProtocol)
    return found


def status_of_next(answers: BinaryIO) -> int:
    """Read one answer to its end."""
    status = int(answers.readline().split()[1])
    headers = http.client.parse_headers(answers)
    length = int(headers["content-length"])
    assert len(answers.read(length)) == length
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


@pytest.mark.parametrize("sent", [b"", b"GET /heal", _GET, _GET + b"X-Slow: "])
def test_a_head_that_does_not_come_in_time_is_given_up(
    live: LiveServer, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr("api.http.protocol._HEAD_S", 1.0)
    with connected(live) as connection:
        begin = time.monotonic()
        connection.sendall(sent)
        answer = connection.recv(100)
        assert time.monotonic() - begin < 8
        assert answer.startswith(b"HTTP/1.1 408 ") if sent else answer == b""


def test_a_drip_of_bytes_makes_a_head_no_longer_lived(live: LiveServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("api.http.protocol._HEAD_S", 1.0)
    with connected(live) as connection, connection.makefile("rb") as answers:
        # The second request of a connection, too.
        connection.sendall(_GET + b"\r\n")
        assert status_of_next(answers) == 200
        begin = time.monotonic()
        with contextlib.suppress(OSError):
            connection.sendall(_GET)
            while time.monotonic() - begin < 8:
                connection.sendall(b"X-A: b\r\n")
                time.sleep(0.1)
        assert time.monotonic() - begin < 8


def test_an_idle_connection_is_kept_longer_than_a_head(live: LiveServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("api.http.protocol._HEAD_S", 0.5)
    monkeypatch.setattr("api.http.protocol._STILL_S", 0.5)
    with connected(live) as connection, connection.makefile("rb") as answers:
        for _ in range(2):
            connection.sendall(_GET + b"\r\n")
            assert status_of_next(answers) == 200
            time.sleep(2.2)


def test_a_body_that_stands_still_is_given_up(live: LiveServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("api.http.protocol._STILL_S", 1.0)
    with connected(live) as connection:
        connection.sendall(_POST + b"Content-Length: 100\r\n\r\n{")
        begin = time.monotonic()
        with contextlib.suppress(ConnectionResetError):
            connection.recv(100)
        assert time.monotonic() - begin < 8


def test_lines_of_a_batch_may_come_with_pauses(live: LiveServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are graded meanwhile."""
    monkeypatch.setattr("api.http.protocol._STILL_S", 0.5)
    line = b'{"problem": "relu", "code": "class ModelNew: pass"}\n'
    head = b"POST /api/v1/batches HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-ndjson; charset=utf-8\r\n"
    with connected(live) as connection, connection.makefile("rb") as answers:
        connection.sendall(head + f"Content-Length: {2 * len(line)}\r\n\r\n".encode() + line)
        time.sleep(1.7)
        connection.sendall(line)
        assert status_of_next(answers) == 202
    # They have a limit as well.
    monkeypatch.setattr("api.http.protocol._STREAM_STILL_S", 0.5)
    with connected(live) as connection:
        connection.sendall(head + f"Content-Length: {2 * len(line)}\r\n\r\n".encode() + line)
        begin = time.monotonic()
        with contextlib.suppress(ConnectionResetError):
            connection.recv(100)
        assert time.monotonic() - begin < 8


def test_a_client_that_waits_to_be_asked_for_its_body_does_not_stand_still(
    live: LiveServer, app: FastAPI, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.http.protocol._STILL_S", 0.5)

    @app.post("/late")
    async def late(request: Request) -> int:
        await asyncio.sleep(1.7)
        return len(await request.body())

    with connected(live) as connection, connection.makefile("rb") as answers:
        connection.sendall(b"POST /late HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n")
        assert answers.readline() == b"HTTP/1.1 100 Continue\r\n"
        assert answers.readline() == b"\r\n"
        connection.sendall(b"{}")
        assert status_of_next(answers) == 200


def test_an_answer_that_nobody_reads_is_given_up(live: LiveServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("api.http.protocol._STILL_S", 1.0)
    with connected(live) as connection:
        with contextlib.suppress(OSError):
            for _ in range(100_000):
                connection.sendall(b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n")
        wait_until(lambda: not live.server.server_state.connections, "the end of the connection")


def test_half_sent_requests_make_room_for_whole_ones(live: LiveServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("api.http.protocol._most_connections", lambda: 20)
    with contextlib.ExitStack() as held:
        for _ in range(100):
            held.enter_context(connected(live)).sendall(b"GET /heal")
        with connected(live) as connection:
            connection.sendall(_GET + b"\r\n")
            assert connection.recv(100).startswith(b"HTTP/1.1 200 OK\r\n")
        assert len(live.server.server_state.connections) <= 20


def test_connections_that_come_at_once_are_no_more_than_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("api.http.protocol._most_connections", lambda: 20)
    state = uvicorn.server.ServerState()
    config = uvicorn.Config(FastAPI(), log_config=None)

    async def connect_all() -> int:
        loop = asyncio.get_running_loop()
        pairs = [socket.socketpair() for _ in range(60)]
        # The loop makes all of them in one turn, before it takes leave of any.
        made = [loop.connect_accepted_socket(lambda: BoundedProtocol(config, state, {}), ours) for ours, _ in pairs]
        transports = [transport for transport, _ in await asyncio.gather(*made)]
        here = sum(not transport.is_closing() for transport in transports)
        for transport, (_, theirs) in zip(transports, pairs, strict=True):
            transport.abort()
            theirs.close()
        await asyncio.sleep(0)
        return here

    assert asyncio.run(connect_all()) == 20


def test_a_download_that_is_slow_makes_no_room(live: LiveServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The application has handed its answer over, and the client has not read it."""
    monkeypatch.setattr("api.http.protocol._most_connections", lambda: 5)
    with connected(live) as download, download.makefile("rb") as answers:
        first = only_connection(live)
        download.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        first.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        download.sendall(b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n")
        wait_until(lambda: first.cycle and first.cycle.response_complete, "the end of the request")
        assert first.transport.get_write_buffer_size()
        with contextlib.ExitStack() as held:
            for _ in range(20):
                held.enter_context(connected(live))
            with connected(live) as connection:
                connection.sendall(_GET + b"\r\n")
                assert connection.recv(100).startswith(b"HTTP/1.1 200 OK\r\n")
            assert status_of_next(answers) == 200


def test_the_number_of_connections_is_bounded_whatever_the_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    for soft, most in ((resource.RLIM_INFINITY, 10_000), (2**20, 10_000), (1024, 896), (100, 1)):
        monkeypatch.setattr(resource, "getrlimit", lambda _, soft=soft: (soft, soft))
        assert _most_connections() == most


def test_the_server_takes_all_the_descriptors_that_it_may_have(tmp_path: Path) -> None:
    code = (
        "import asyncio, resource\n"
        "from api.server import make_server\n"
        "from runtime.settings import Settings\n"
        "_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))\n"
        "server = make_server(Settings(port=0))\n"
        "server.config.load()\n"
        "server.lifespan = server.config.lifespan_class(server.config)\n"
        "asyncio.run(server.startup())\n"
        "soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)\n"
        "assert soft == hard != 256, (soft, hard)\n"
    )
    environment = python_environment({**os.environ, "KERNELJUDGE_DATA_DIR": str(tmp_path)})
    subprocess.run([sys.executable, "-c", code], env=environment, check=True, timeout=120)


def test_trailers_are_no_headers(live: LiveServer) -> None:
    identity = b"a-trailer-of-ours"
    chunked = _POST + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nX-Request-ID: " + identity + b"\r\n\r\n"
    with connected(live) as connection:
        connection.sendall(chunked)
        answer = connection.recv(10_000)
    assert answer.startswith(b"HTTP/1.1 422")
    assert b"x-request-id: " in answer.lower()
    assert identity not in answer
