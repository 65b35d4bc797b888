"""A process of ours that is started once, led over a socket, and replaced when it dies. Torch-free.

Its standard error becomes log lines of this process (see ``evaluator.logs``).
"""

from __future__ import annotations

import logging
import os
import socket
import subprocess
import threading
from collections.abc import Mapping, Sequence
from typing import IO, Any, Final

from evaluator import logs
from evaluator.errors import InfrastructureFault
from evaluator.interpreter import python_command
from evaluator.protocol import messages

__all__ = ["ChildProcess"]

_LINE_BYTES: Final = 2**16
_LAST_LINES_S: Final = 1.0
_REMEMBERED: Final = 256

_log = logging.getLogger(__name__)


class ChildProcess:
    """The process ``python -m module *arguments FD``: ``FD`` is its end of the socket, and it ends when ours closes.

    ``display_name`` names it in faults; ``stop_s`` is the time that it has to end by itself, in seconds.
    """

    def __init__(
        self, module: str, *arguments: str, environment: Mapping[str, str], display_name: str, stop_s: float
    ) -> None:
        self._command = python_command("-m", module, *arguments)
        self._environment = dict(environment)
        self._display_name = display_name
        self._stop_s = stop_s
        self.processors: frozenset[int] | None = None
        """The processors of the process and its children; ``None``: the same as ours. To be set before it starts."""
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: socket.socket | None = None
        self._stderr_thread: threading.Thread | None = None
        self._latest_log_fields: Mapping[str, str] = {}
        self._log_fields: dict[int, Mapping[str, str]] = {}
        self._log_fields_lock = threading.Lock()

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
        if self._stderr_thread is not None:
            # Its last output. Only for a while: a process that it started may hold its standard error open.
            self._stderr_thread.join(_LAST_LINES_S)

    def _launch(self, answer_s: float | None) -> None:
        """Start the process without waiting for it. ``answer_s``: how long it may take to answer a request."""
        ours, theirs = socket.socketpair()
        self._process = subprocess.Popen(
            [*self._command, str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        assert self._process.stderr is not None
        self._stderr_thread = threading.Thread(target=self._relay, args=(self._process.stderr,), daemon=True)
        self._stderr_thread.start()
        _log.debug("%s was started, pid %d", self._display_name, self._process.pid)
        if self.processors is not None:
            os.sched_setaffinity(self._process.pid, self.processors)
        theirs.close()
        ours.settimeout(answer_s)
        self._connection = ours

    def _connected(self) -> socket.socket:
        if self._connection is None:
            raise InfrastructureFault(f"{self._display_name} is not running")
        return self._connection

    def _send(self, message: Mapping[str, Any], descriptors: Sequence[int] = ()) -> None:
        self._latest_log_fields = logs.current_fields()
        try:
            messages.send(self._connected(), message, descriptors)
        except messages.ConnectionClosed as error:
            raise InfrastructureFault(f"{self._display_name} died") from error

    def _receive(self) -> dict[str, Any]:
        try:
            return messages.receive(self._connected())[0]
        except messages.ConnectionClosed as error:
            raise InfrastructureFault(f"{self._display_name} died") from error
        except (messages.MessageTooLarge, TimeoutError) as error:
            raise InfrastructureFault(f"{self._display_name} does not answer") from error

    def _relay(self, printed: IO[bytes]) -> None:
        with printed:
            while line := printed.readline(_LINE_BYTES):
                text = line.decode(errors="replace").rstrip()
                if text:
                    logs.relay(text, self._display_name, self._log_fields_of)

    def _log_fields_of(self, number: int | None) -> Mapping[str, str]:
        """Return the fields of the request with ``number``, or of the latest one."""
        return self._latest_log_fields if number is None else self._log_fields.get(number, {})

    def keep_log_fields(self, number: int) -> None:
        """Give the present log fields to the process's reports with this number."""
        with self._log_fields_lock:
            self._log_fields.pop(number, None)  # the latest are remembered, and this is one of them again
            self._log_fields[number] = logs.current_fields()
            if len(self._log_fields) > _REMEMBERED:
                del self._log_fields[next(iter(self._log_fields))]
