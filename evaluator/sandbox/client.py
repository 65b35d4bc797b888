"""The supervisor's side of the fork server: start it, fork runners from it, end them. Torch-free."""

from __future__ import annotations

import contextlib
import itertools
import select
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from evaluator.errors import InfrastructureFault
from evaluator.protocol.child_process import ChildProcess
from evaluator.sandbox.layers import Layer

__all__ = ["ForkServer", "RunnerProcess"]

_START_S: Final = 120.0
_SPAWN_S: Final = 20.0
_STOP_S: Final = 20.0
_KILL_S: Final = 120.0
"""The wait for a runner's end, in seconds. A fork bomb's processes wait for each other at one lock of the kernel's:
1024 of them took 50 s to end on two processors.
"""
# Shared by all fork servers of this process, so that no number of a runner is used twice.
_numbers = itertools.count(1)


@dataclass
class RunnerProcess:
    """A runner as its supervisor knows it."""

    number: int
    pid: int = 0
    group: str | None = None
    """The folder of its control group, where it has one."""
    directory: str = ""
    """Its working folder, as it sees it."""
    refused: tuple[Layer, ...] = ()
    """The layers of isolation that the kernel refused."""
    status: int | None = None
    """The raw wait status once it has ended (``os.waitstatus_to_exitcode`` reads it)."""
    out_of_memory: bool = False
    """The kernel killed it at the limit of its control group."""
    killed_for_others: bool = False
    """The kernel killed it for want of memory, and it was within its own limit: the machine had no more."""
    archive: str = ""
    """The archive of its compilers' files in its working folder; empty where there is none."""
    left: bool = False
    """Whether a process of it survived its end, or it did not end on request."""
    started: bool = field(default=False, repr=False)


class ForkServer(ChildProcess):
    """One warm process and the runners forked from it. Not for concurrent use."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        super().__init__(
            "evaluator.sandbox.forkserver",
            environment=environment,
            display_name="the process that runners are forked from",
            stop_s=_STOP_S,
        )
        self._runners: dict[int, RunnerProcess] = {}
        self._lock = threading.RLock()
        self.versions: dict[str, str | None] = {}

    def start(self) -> None:
        """Start the process and wait until it is warm. Raises ``InfrastructureFault``."""
        self._launch(_START_S)
        try:
            message = self._receive()
        except InfrastructureFault as error:
            self.close()
            raise InfrastructureFault(f"{self._display_name} did not start") from error
        self.versions = {"torch": message["torch"], "cuda": message["cuda"]}

    def probe_layers(self, spec: Mapping[str, Any]) -> tuple[Layer, ...]:
        """Return the layers of isolation that the kernel refuses on this machine. Raises ``InfrastructureFault``."""
        trial = self.begin_spawn(spec, ())
        self.await_spawned(trial)
        self.kill(trial)
        return trial.refused

    def begin_spawn(self, spec: Mapping[str, Any], descriptors: Sequence[int]) -> RunnerProcess:
        """Fork a runner, without waiting for it; ``await_spawned`` waits.

        ``descriptors``: its control socket, its build socket, its log; none for a trial. Raises
        ``InfrastructureFault``.
        """
        with self._lock:
            runner = RunnerProcess(next(_numbers))
            self._runners[runner.number] = runner
            self.keep_log_fields(runner.number)
            self._send({"op": "spawn", "id": runner.number, "spec": spec}, descriptors)
            return runner

    def await_spawned(self, runner: RunnerProcess) -> None:
        """Wait until a runner is there. Raises ``InfrastructureFault``."""
        with self._lock:
            try:
                self._listen_until(lambda: runner.started or runner.status is not None, _SPAWN_S)
            except TimeoutError as error:
                self.begin_kill(runner)
                raise InfrastructureFault(f"a runner was not forked within {_SPAWN_S:.0f} s") from error
            if not runner.started:
                raise InfrastructureFault("a runner could not be forked")

    def poll(self, runner: RunnerProcess, wait_s: float = 0.0) -> int | None:
        """Return the runner's wait status if it has ended, waiting up to ``wait_s`` seconds for that."""
        with self._lock:
            with contextlib.suppress(TimeoutError):
                self._listen_until(lambda: runner.status is not None, wait_s)
            return runner.status

    def begin_kill(self, runner: RunnerProcess) -> None:
        """Have a runner ended without waiting for it; ``kill`` waits."""
        with self._lock:
            if runner.status is None:
                self._send({"op": "kill", "id": runner.number})

    def kill(self, runner: RunnerProcess) -> int:
        """End the runner and everything that it started; returns its wait status. Idempotent."""
        with self._lock:
            self.begin_kill(runner)
            try:
                # Once is enough: a caller that closes everything repeats the request.
                self._listen_until(lambda: runner.status is not None, 0.0 if runner.left else _KILL_S)
            except TimeoutError as error:
                runner.left = True
                raise InfrastructureFault(f"runner {runner.pid} does not die") from error
            self._runners.pop(runner.number, None)
            assert runner.status is not None
            return runner.status

    def _listen_until(self, condition: Callable[[], bool], wait_s: float) -> None:
        deadline = time.monotonic() + wait_s
        while not condition():
            readable, _, _ = select.select([self._connected()], [], [], max(0.0, deadline - time.monotonic()))
            if not readable:
                raise TimeoutError
            self._note(self._receive())

    def _note(self, message: Mapping[str, Any]) -> None:
        runner = self._runners.get(message["id"])
        if runner is None:
            return
        if message["event"] == "spawned":
            runner.pid, runner.group, runner.directory = message["pid"], message["group"], message["directory"]
            runner.refused, runner.started = tuple(map(Layer, message["refused"])), True
        else:
            runner.out_of_memory, runner.left = message["out_of_memory"], message["left"]
            runner.killed_for_others, runner.archive = message["killed_for_others"], message["archive"]
            runner.status = message["status"]
