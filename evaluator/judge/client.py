"""The supervisor's side of the judge's process. Torch-free."""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from evaluator.config import EvalConfig
from evaluator.errors import (
    DeviceUnavailable,
    DoesNotFit,
    EvaluationCancelled,
    GroupDoesNotFit,
    InfrastructureFault,
    ProblemError,
)
from evaluator.problems.problem import Problem
from evaluator.protocol.child_process import ChildProcess

__all__ = ["JudgeProcess", "RunnerAccess"]

_START_S: Final = 180.0
_CLEAN_S: Final = 60.0
_POLL_S: Final = 0.2
_GRACE_S: Final = 300.0
_REFUSALS: Final = {error.__name__: error for error in (DeviceUnavailable, DoesNotFit, GroupDoesNotFit, ProblemError)}


@dataclass(frozen=True)
class RunnerAccess:
    """The judge's access to a runner: the descriptor of its control socket; ``pid`` and ``group`` of its processes."""

    control: int
    freezer: Mapping[str, Any]


class JudgeProcess(ChildProcess):
    """One judge. Not for concurrent use. ``peak_rates_folder``: the folder for the measurements of its device."""

    def __init__(self, kind: str, environment: Mapping[str, str], peak_rates_folder: Path) -> None:
        super().__init__(
            "evaluator.judge",
            kind,
            str(peak_rates_folder),
            environment=environment,
            display_name="the judge",
            stop_s=0.0,
        )
        self.description: dict[str, Any] = {}

    @property
    def alive(self) -> bool:
        """Whether it runs and has said that it is ready."""
        return bool(self.description) and super().alive

    def launch(self) -> None:
        """Start the process without waiting for it; ``await_ready`` waits."""
        self._launch(None)

    def await_ready(self) -> None:
        """Wait until it is ready. Raises ``DeviceUnavailable``, or ``InfrastructureFault`` where the process died."""
        message = self._receive_by(time.monotonic() + _START_S)
        if message["event"] != "ready":
            self.close()
            raise _REFUSALS[message["error"]](message["message"])
        self.description = message["environment"]

    def begin(self, *, waiting: int) -> None:
        """Have the judge note the memory in use on the device, and measure its highest rates where they are unknown.
        Call it before runners are given their tasks; ``waiting`` is the number of these runners.

        Raises ``InfrastructureFault``.
        """
        try:
            self._send({"op": "begin", "waiting": waiting})
            self._receive_by(time.monotonic() + _START_S)
        except InfrastructureFault:
            self.close()  # a late answer would be taken for another one
            raise

    def begin_evaluation(
        self,
        problem: Problem,
        config: EvalConfig,
        candidates: Sequence[RunnerAccess],
        baseline: RunnerAccess | None,
        *,
        contexts: int,
        spare: int,
        keeps: bool,
    ) -> None:
        """Have candidates judged together, or one alone, without waiting for it; ``await_result`` waits.

        ``baseline`` of ``None``: the one that the session before has kept. ``contexts``: the number of processes that
        come to the device meanwhile and wait there, besides the ``spare`` ones that already do. ``keeps``: whether the
        baseline is wanted for another evaluation.

        ``clean_up`` must follow once the runners are gone, except for a kept baseline, whatever happens. Raises
        ``InfrastructureFault``.
        """
        message = {
            "op": "evaluate",
            "problem": problem.to_dict(),
            "config": {**asdict(config), "rules": config.rules.to_dict()},
            "candidates": [candidate.freezer for candidate in candidates],
            "baseline": None if baseline is None else baseline.freezer,
            "contexts": contexts,
            "spare": spare,
            "keeps": keeps,
        }
        self._send(message, [each.control for each in (*candidates, baseline) if each is not None])

    def await_result(
        self,
        time_s: float,
        on_progress: Callable[[int, str, str, float | None], None],
        cancelled: Callable[[], bool],
        assign: Callable[[], None],
        allow_device_use: Callable[[], None],
        quiesce: Callable[[], bool],
    ) -> dict[str, Any]:
        """Return the judge's ``SessionResult``, as plain data; its ``keeps_baseline`` goes into ``clean_up``. The judge
        has ``time_s`` for it, in seconds.

        ``on_progress`` is told the progress of each candidate. ``assign`` is called once all memory is allocated. It
        gives the runners their tasks, and starts nothing that goes on when it returns. ``allow_device_use`` is called
        when others may come to the device. ``quiesce`` is called when they must do nothing there any more, and returns
        whether they wait there. Raises ``DoesNotFit``, ``ProblemError``, ``EvaluationCancelled`` and
        ``InfrastructureFault``.
        """
        # The judge ends a session in time by itself; one that does not is broken.
        deadline = time.monotonic() + time_s + _GRACE_S
        while True:
            if cancelled():
                raise EvaluationCancelled
            if time.monotonic() > deadline:
                self.close()
                raise InfrastructureFault("the judge does not come to a verdict")
            if not select.select([self._connected()], [], [], _POLL_S)[0]:
                continue
            message = self._receive_by(deadline)
            if message["event"] == "progress":
                on_progress(message["candidate"], message["stage"], message["message"], message["share"])
            elif message["event"] == "prepared":
                assign()
            elif message["event"] == "allow_device_use":
                allow_device_use()
            elif message["event"] == "stop_starting":
                # Processes that were being started when the judge asked are there by now.
                self._send({"op": "stop_starting"})
            elif message["event"] == "quiesce":
                self._send({"op": "quiesce", "waiting": quiesce()})
            elif message["event"] == "result":
                return message
            elif message["event"] == "refused":
                raise _REFUSALS[message["error"]](message["message"])
            else:
                raise InfrastructureFault(f"the judge failed: {message['message']}")

    def clean_up(self, *, keeps_baseline: bool) -> None:
        """Have the shared memory freed. A judge that cannot is ended; the next evaluation starts a new one.

        Raises ``InfrastructureFault`` where something of the evaluation is still on the device.
        """
        if not self.alive:
            return
        try:
            self._send({"op": "clean_up", "keeps_baseline": keeps_baseline})
            deadline = time.monotonic() + _CLEAN_S
            while (message := self._receive_by(deadline))["event"] != "clean":
                pass
        except InfrastructureFault:
            self.close()
            return
        if message["left"]:
            self.close()
            raise InfrastructureFault(f"after an evaluation the device is not as it was before: {message['left']}")

    def close(self) -> None:
        """End the process. Idempotent."""
        self.description = {}
        super().close()

    def _receive_by(self, deadline: float) -> dict[str, Any]:
        connection = self._connected()
        connection.settimeout(max(0.1, deadline - time.monotonic()))
        try:
            return self._receive()
        finally:
            if self._connection is not None:
                connection.settimeout(None)
