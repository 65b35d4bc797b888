"""The supervisor's side of the fork server: start it, fork runners from it, end them. Torch-free."""

from __future__ import annotations

import contextlib
import itertools
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from evaluator import wire
from evaluator.errors import InfrastructureFault

__all__ = ["ForkServer", "RunnerProcess", "freeze", "thaw"]

_START_S: Final = 120.0
_SPAWN_S: Final = 20.0
_KILL_S: Final = 20.0
# Over all fork servers of this process: the number of a runner never comes again.
_numbers = itertools.count(1)


@dataclass
class RunnerProcess:
    """A runner as its supervisor knows it. ``refused`` lists the isolation layers that the kernel refused."""

    number: int
    pid: int = 0
    refused: tuple[str, ...] = ()
    status: int | None = None
    """The raw wait status once it has ended (``os.waitstatus_to_exitcode`` reads it)."""
    started: bool = field(default=False, repr=False)


class ForkServer:
    """One warm process and the runners forked from it. Not for concurrent use."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = dict(environment)
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: socket.socket | None = None
        self._runners: dict[int, RunnerProcess] = {}
        self._lock = threading.RLock()
        self.versions: dict[str, str | None] = {}

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Start the process and wait until it is warm. Raises ``InfrastructureFault``."""
        ours, theirs = socket.socketpair()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "evaluator.sandbox.forkserver", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            env=self._environment,
            stdin=subprocess.DEVNULL,
        )
        theirs.close()
        ours.settimeout(_START_S)
        self._connection = ours
        try:
            message, _ = wire.receive(ours)
        except (wire.ConnectionClosed, TimeoutError) as error:
            self.close()
            raise InfrastructureFault("the process that runners are forked from did not start") from error
        self.versions = {"torch": message["torch"], "cuda": message["cuda"]}

    def spawn(self, spec: Mapping[str, Any], descriptors: Sequence[int]) -> RunnerProcess:
        """Fork a runner. ``descriptors``: its control socket, its build socket, its log."""
        with self._lock:
            runner = RunnerProcess(next(_numbers))
            self._runners[runner.number] = runner
            self._send({"op": "spawn", "id": runner.number, "spec": spec}, descriptors)
            try:
                self._listen_until(lambda: runner.started or runner.status is not None, _SPAWN_S)
            except TimeoutError as error:
                self._send({"op": "kill", "id": runner.number})
                raise InfrastructureFault(f"a runner was not forked within {_SPAWN_S:.0f} s") from error
            if not runner.started:
                raise InfrastructureFault("a runner could not be forked")
            return runner

    def poll(self, runner: RunnerProcess, wait_s: float = 0.0) -> int | None:
        """The runner's wait status if it has ended, waiting up to ``wait_s`` for that."""
        with self._lock:
            with contextlib.suppress(TimeoutError):
                self._listen_until(lambda: runner.status is not None, wait_s)
            return runner.status

    def kill(self, runner: RunnerProcess) -> int:
        """End the runner and everything that it started; returns its wait status. Idempotent."""
        with self._lock:
            if runner.status is None:
                self._send({"op": "kill", "id": runner.number})
                try:
                    self._listen_until(lambda: runner.status is not None, _KILL_S)
                except TimeoutError as error:
                    raise InfrastructureFault(f"runner {runner.pid} does not die") from error
            self._runners.pop(runner.number, None)
            assert runner.status is not None
            return runner.status

    def close(self) -> None:
        """End the process with every runner. Idempotent."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        if self._process is not None:
            try:
                self._process.wait(_KILL_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def _send(self, message: Mapping[str, Any], descriptors: Sequence[int] = ()) -> None:
        if self._connection is None:
            raise InfrastructureFault("the process that runners are forked from is not running")
        try:
            wire.send(self._connection, message, descriptors)
        except wire.ConnectionClosed as error:
            raise InfrastructureFault("the process that runners are forked from died") from error

    def _listen_until(self, condition: Any, wait_s: float) -> None:
        deadline = time.monotonic() + wait_s
        while not condition():
            connection = self._connection
            if connection is None:
                raise InfrastructureFault("the process that runners are forked from is not running")
            readable, _, _ = select.select([connection], [], [], max(0.0, deadline - time.monotonic()))
            if not readable:
                raise TimeoutError
            try:
                message, _ = wire.receive(connection)
            except wire.ConnectionClosed as error:
                raise InfrastructureFault("the process that runners are forked from died") from error
            self._note(message)

    def _note(self, message: Mapping[str, Any]) -> None:
        runner = self._runners.get(message["id"])
        if runner is None:
            return
        if message["event"] == "spawned":
            runner.pid, runner.refused, runner.started = message["pid"], tuple(message["refused"]), True
        else:
            runner.status = message["status"]


def freeze(pids: Sequence[int]) -> None:
    """Stop the given processes (``SIGSTOP``); those that have ended are passed over."""
    _signal_all(pids, signal.SIGSTOP)


def thaw(pids: Sequence[int]) -> None:
    """Let the given processes go on (``SIGCONT``)."""
    _signal_all(pids, signal.SIGCONT)


def _signal_all(pids: Sequence[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
