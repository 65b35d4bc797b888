"""The runners of one evaluation. Torch-free."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from evaluator.builder.client import BuilderProcess
from evaluator.config import Limits
from evaluator.errors import InfrastructureFault
from evaluator.judge.client import JudgeProcess
from evaluator.processes.runner_handle import RunnerHandle
from evaluator.progress import never_cancelled
from evaluator.sandbox.client import ForkServer

__all__ = ["MadeFor", "Team", "close_runners", "require_gone"]

MadeFor = tuple[Limits, JudgeProcess | None, ForkServer | None, BuilderProcess | None]
"""The limits and the trusted processes that runners were made for."""


@dataclass
class Team:
    """New runners, for one evaluation: of candidates, and of their baseline."""

    candidates: list[RunnerHandle]
    baseline: RunnerHandle
    made_for: MadeFor

    @property
    def runners(self) -> list[RunnerHandle]:
        """All of them, the baseline's at the end."""
        return [*self.candidates, self.baseline]

    def await_forked(self) -> None:
        """Wait until all processes are there. Raises ``InfrastructureFault``."""
        for runner in self.runners:
            runner.await_forked()

    def begin_warm_up(self) -> None:
        """Have all of them do what needs no task. Raises ``InfrastructureFault``."""
        for runner in self.runners:
            runner.begin_warm_up()

    def await_warm(self, cancelled: Callable[[], bool] = never_cancelled) -> None:
        """Wait until all can take a task. Raises ``EvaluationCancelled`` and ``InfrastructureFault``."""
        self.await_forked()
        self.begin_warm_up()
        for runner in self.runners:
            runner.await_warm(cancelled)

    def is_ready(self, cancelled: Callable[[], bool]) -> bool:
        """Whether all can take a task; waits until they can. Raises ``EvaluationCancelled``."""
        try:
            self.await_warm(cancelled)
            return all(runner.alive for runner in self.runners)
        except InfrastructureFault:
            return False

    def close(self) -> None:
        """End all of them. Idempotent."""
        close_runners(self.runners)


def require_gone(runner: RunnerHandle) -> None:
    """Raise ``InfrastructureFault`` if a process is left: no measurement beside it would be worth anything."""
    if runner.process.left:
        raise InfrastructureFault("something of a candidate or a baseline survived its end")


def close_runners(runners: Sequence[RunnerHandle]) -> None:
    """End all of them side by side. Idempotent."""
    for runner in runners:
        with contextlib.suppress(InfrastructureFault):
            runner.await_forked()  # killed before, it would leave its control group behind
    for runner in runners:
        runner.begin_kill()  # a context takes a while to go
    for runner in runners:
        runner.close()
