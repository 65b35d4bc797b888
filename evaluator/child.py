"""A process of ours that is started once, led over a socket, and replaced when it dies. Torch-free."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from evaluator import wire
from evaluator.errors import InfrastructureFault

__all__ = ["ChildProcess"]


class ChildProcess:
    """``python -m module *arguments FD``: ``FD`` is its end of the socket, and it ends when ours closes.

    ``called`` names it in faults; ``stop_s`` is how long it may take to end by itself.
    """

    def __init__(
        self, module: str, *arguments: str, environment: Mapping[str, str], called: str, stop_s: float
    ) -> None:
        self._command = [sys.executable, "-m", module, *arguments]
        self._environment = dict(environment)
        self._called = called
        self._stop_s = stop_s
        self.processors: frozenset[int] | None = None
        """Where it may run, with all that it starts; ``None``: wherever we may. To be set before it starts."""
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: socket.socket | None = None

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def close(self) -> None:
        """End the process with everything that it started. Idempotent."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        if self._process is not None:
            try:
                self._process.wait(self._stop_s)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def _launch(self, answer_s: float | None) -> None:
        """Start the process without waiting for it. ``answer_s``: how long it may be silent when asked something."""
        ours, theirs = socket.socketpair()
        self._process = subprocess.Popen(
            [*self._command, str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            env=self._environment,
            stdin=subprocess.DEVNULL,
        )
        if self.processors is not None:
            os.sched_setaffinity(self._process.pid, self.processors)
        theirs.close()
        ours.settimeout(answer_s)
        self._connection = ours

    def _connected(self) -> socket.socket:
        if self._connection is None:
            raise InfrastructureFault(f"{self._called} is not running")
        return self._connection

    def _send(self, message: Mapping[str, Any], descriptors: Sequence[int] = ()) -> None:
        try:
            wire.send(self._connected(), message, descriptors)
        except wire.ConnectionClosed as error:
            raise InfrastructureFault(f"{self._called} died") from error

    def _receive(self) -> dict[str, Any]:
        try:
            return wire.receive(self._connected())[0]
        except wire.ConnectionClosed as error:
            raise InfrastructureFault(f"{self._called} died") from error
        except (wire.MessageTooLarge, TimeoutError) as error:
            raise InfrastructureFault(f"{self._called} does not answer") from error
