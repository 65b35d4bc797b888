"""The supervisor's side of the judge's process. Torch-free."""

from __future__ import annotations

import select
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

from evaluator import wire
from evaluator.config import EvalConfig
from evaluator.errors import DeviceUnavailable, DoesNotFit, EvaluationCancelled, InfrastructureFault, ProblemError
from evaluator.problem import Problem

__all__ = ["JudgeProcess"]

_START_S: Final = 180.0
_CLEAN_S: Final = 60.0
_POLL_S: Final = 0.2
_GRACE_S: Final = 300.0
_REFUSALS: Final = {error.__name__: error for error in (DeviceUnavailable, DoesNotFit, ProblemError)}


class JudgeProcess:
    """One judge. Not for concurrent use."""

    def __init__(self, kind: str, environment: Mapping[str, str]) -> None:
        self._kind = kind
        self._environment = dict(environment)
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: socket.socket | None = None
        self.description: dict[str, Any] = {}

    @property
    def alive(self) -> bool:
        """Whether it runs and has said that it is ready."""
        return bool(self.description) and self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def launch(self) -> None:
        """Start the process without waiting for it; ``await_ready`` waits."""
        ours, theirs = socket.socketpair()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "evaluator.judge", self._kind, str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            env=self._environment,
            stdin=subprocess.DEVNULL,
        )
        theirs.close()
        self._connection = ours

    def await_ready(self) -> None:
        """Raises ``DeviceUnavailable``, or ``InfrastructureFault`` where the process died."""
        message = self._receive(time.monotonic() + _START_S)
        if message["event"] != "ready":
            self.close()
            raise _REFUSALS[message["error"]](message["message"])
        self.description = message["environment"]

    def evaluate(
        self,
        problem: Problem,
        config: EvalConfig,
        controls: Sequence[int],
        enclosures: Mapping[str, Mapping[str, Any]],
        on_progress: Callable[[str, str, float | None], None],
        cancelled: Callable[[], bool],
    ) -> dict[str, Any]:
        """Have one candidate judged; returns the judge's ``Outcome`` as plain data.

        ``controls``: control sockets of the candidate's and the baseline's runner; ``enclosures``: ``pid``
        and ``group`` of each. ``clean_up`` must
        follow once both runners are gone. Raises ``DoesNotFit``, ``ProblemError``,
        ``EvaluationCancelled`` and ``InfrastructureFault``.
        """
        assert self._connection is not None
        request = {"op": "evaluate", "problem": problem.to_dict(), "config": asdict(config), **enclosures}
        try:
            wire.send(self._connection, request, controls)
        except wire.ConnectionClosed as error:
            raise InfrastructureFault("the judge died") from error
        # The judge ends an evaluation at ``total_s`` by itself; one that does not is broken.
        deadline = time.monotonic() + config.limits.total_s + config.limits.build_s + _GRACE_S
        while True:
            if cancelled():
                raise EvaluationCancelled
            if time.monotonic() > deadline:
                self.close()
                raise InfrastructureFault("the judge does not come to a verdict")
            if not select.select([self._connection], [], [], _POLL_S)[0]:
                continue
            message = self._receive(deadline)
            if message["event"] == "progress":
                on_progress(message["stage"], message["message"], message["share"])
            elif message["event"] == "outcome":
                outcome: dict[str, Any] = message["outcome"]
                return outcome
            elif message["event"] == "refused":
                raise _REFUSALS[message["error"]](message["message"])
            else:
                raise InfrastructureFault(f"the judge failed: {message['message']}")

    def clean_up(self) -> None:
        """Have the shared memory freed. A judge that cannot is ended; the next evaluation starts a new one.

        Raises ``InfrastructureFault`` where something of the evaluation is still on the device.
        """
        if self._connection is None or not self.alive:
            return
        try:
            wire.send(self._connection, {"op": "clean_up"})
            deadline = time.monotonic() + _CLEAN_S
            while (message := self._receive(deadline))["event"] != "clean":
                pass
        except (wire.ConnectionClosed, InfrastructureFault):
            self.close()
            return
        if message["left"]:
            self.close()
            raise InfrastructureFault(f"after an evaluation the device is not as it was before: {message['left']}")

    def close(self) -> None:
        """End the process. Idempotent."""
        self.description = {}
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _receive(self, deadline: float) -> dict[str, Any]:
        assert self._connection is not None
        self._connection.settimeout(max(0.1, deadline - time.monotonic()))
        try:
            return wire.receive(self._connection)[0]
        except wire.ConnectionClosed as error:
            raise InfrastructureFault("the judge died") from error
        except TimeoutError as error:
            raise InfrastructureFault("the judge does not answer") from error
        finally:
            if self._connection is not None:
                self._connection.settimeout(None)
