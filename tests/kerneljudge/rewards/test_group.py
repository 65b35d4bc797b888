"""Deadlines: a call returns by its own, whatever the service does."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from kerneljudge.errors import RequestRefused
from kerneljudge.rewards import KernelRewards, RewardShape, Ungraded
from tests.kerneljudge.graded import answer
from tests.services import free_port

Url = contextlib.AbstractContextManager[str]
_TIMEOUT_S = 1.0


@contextlib.contextmanager
def gone() -> Iterator[str]:
    """Nothing listens there."""
    yield f"http://127.0.0.1:{free_port()}"


@contextlib.contextmanager
def half_open() -> Iterator[str]:
    """Connections are made, and no request is ever read."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


@contextlib.contextmanager
def answering(
    status: int, *, body: bytes = b"{}", headers: dict[str, str] | None = None, each_byte_s: float = 0
) -> Iterator[str]:
    """A service with one answer to everything, byte by byte where that takes time."""
    stopped = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self.send_response(status)
            for name, value in (headers or {}).items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            with contextlib.suppress(ConnectionError):
                for at in range(len(body)) if each_byte_s else ():
                    self.wfile.write(body[at : at + 1])
                    if stopped.wait(each_byte_s):
                        return
                if not each_byte_s:
                    self.wfile.write(body)

        do_POST = do_DELETE = do_GET  # noqa: N815 - their names

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        stopped.set()
        server.shutdown()
        thread.join()
        server.server_close()


_ACCEPTED = json.dumps({"id": "batch", "items": 2, "status": "queued", "message": ""}).encode()
_FAULTS: dict[str, Callable[[], Url]] = {
    "gone": gone,
    "half open": half_open,
    "slow": lambda: answering(202, body=_ACCEPTED, each_byte_s=0.5),
    "429": lambda: answering(429, headers={"Retry-After": "7"}),
    "429 for a day": lambda: answering(429, headers={"Retry-After": "86400"}),
    "500": lambda: answering(500),
    "502": lambda: answering(502, body=b"<html>"),
    "503": lambda: answering(503, headers={"Retry-After": "20"}),
    "504": lambda: answering(504),
    "no JSON": lambda: answering(200, body=b"<html>"),
}


@pytest.mark.parametrize("number", [1, 2], ids=["one", "a group"])
@pytest.mark.parametrize("fault", _FAULTS)
def test_no_fault_of_the_service_holds_a_call_up(fault: str, number: int) -> None:
    completions = [answer("", str(index)) for index in range(number)]
    with _FAULTS[fault]() as url:
        begin = time.monotonic()
        rewards = KernelRewards(url, timeout_s=_TIMEOUT_S)
        graded = asyncio.run(rewards.grade(completions, ["relu"] * number))
        assert time.monotonic() - begin < _TIMEOUT_S + 1
    for each in graded:
        assert each.reward is None
        assert isinstance(each.doubt, Ungraded)
        assert str(each.doubt)


def test_the_doubt_names_the_trouble() -> None:
    with answering(503) as url, pytest.raises(Ungraded, match=r"no verdict within 0\.5 s \(503 Service Unavailable\)"):
        asyncio.run(KernelRewards(url, RewardShape(ungraded="raise"), timeout_s=0.5)([answer()], ["relu"]))


@pytest.mark.parametrize("number", [1, 2], ids=["one", "a group"])
def test_a_key_that_is_refused_is_no_fault_of_the_service(number: int) -> None:
    problem = json.dumps({"detail": "this key is not known", "errors": []}).encode()
    completions = [answer("", str(index)) for index in range(number)]
    with answering(401, body=problem) as url, pytest.raises(RequestRefused, match="this key is not known"):
        asyncio.run(KernelRewards(url, timeout_s=5)(completions, ["relu"] * number))


def test_a_deadline_is_in_the_future() -> None:
    for timeout_s in (0, -1.0, float("nan")):
        with pytest.raises(ValueError, match="above 0"):
            KernelRewards(timeout_s=timeout_s)
