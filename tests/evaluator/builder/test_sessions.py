"""Sessions of runners with the builder: a fault of ours is noted as one, and reaches no verdict."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from evaluator.builder.__main__ import _Session
from evaluator.protocol import messages
from tests.evaluator.builder.test_builders_machine import Bench

_REQUEST = {"name": "mine", "cpp_sources": ["int one;"]}


@pytest.fixture
def runner() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Both ends of a runner's connection, the runner's first."""
    ours, theirs = socket.socketpair()
    with closing(ours), closing(theirs):
        yield ours, theirs


def _asked(session: _Session, runner: socket.socket) -> tuple[dict[str, Any], list[int]]:
    messages.send(runner, _REQUEST)
    answer, descriptors = messages.receive(runner)
    assert not session.report()["busy"]
    return answer, descriptors


def test_a_built_library_reaches_the_runner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runner: tuple[socket.socket, socket.socket]
) -> None:
    bench = Bench(tmp_path, monkeypatch, failures=0, log="")
    session = _Session(1, bench.builder, runner[1], 60.0)
    answer, (library,) = _asked(session, runner[0])
    assert "error" not in answer
    with os.fdopen(library, "rb") as file:
        assert file.read() == b"library"


def test_a_library_that_cannot_be_copied_is_a_fault_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runner: tuple[socket.socket, socket.socket]
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENFILE, "Too many open files in system")

    bench = Bench(tmp_path, monkeypatch, failures=0, log="")
    session = _Session(1, bench.builder, runner[1], 60.0)
    with monkeypatch.context() as patch:
        patch.setattr("evaluator.builder.__main__.os.memfd_create", full)
        assert _asked(session, runner[0]) == ({"error": "the builder failed"}, [])
    (build,) = session.report()["builds"]
    assert (build["name"], build["infrastructure"]) == ("mine", True)
    # The session goes on, and the build that was kept is delivered.
    answer, (library,) = _asked(session, runner[0])
    os.close(library)
    assert "error" not in answer
    assert bench.attempts == 1


def test_a_library_that_cannot_be_sent_is_a_fault_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runner: tuple[socket.socket, socket.socket]
) -> None:
    def none_left(*_: object) -> None:
        raise OSError(errno.ENOBUFS, "No buffer space available")

    bench = Bench(tmp_path, monkeypatch, failures=0, log="")
    session = _Session(1, bench.builder, runner[1], 60.0)
    monkeypatch.setattr("evaluator.protocol.messages.socket.send_fds", none_left)
    with pytest.raises(messages.ConnectionClosed):
        _asked(session, runner[0])
    assert session.report()["builds"][-1]["infrastructure"]
