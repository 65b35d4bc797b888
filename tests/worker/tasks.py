"""The tasks of one worker, without Celery."""

from __future__ import annotations

import threading

from tests.worker.conftest import Installation
from worker.claim_handler import ClaimHandler
from worker.device_gate import DeviceGate
from worker.diagnosing import Diagnoser
from worker.grading import Grader
from worker.grading_engine import GradingEngine


class WorkerTasks:
    """What the queue calls in a worker that is named ``w``, in the caller's thread."""

    def __init__(
        self,
        installation: Installation,
        engine: GradingEngine,
        *,
        device: str | None,
        stopping: threading.Event | None = None,
        gate: DeviceGate | None = None,
    ) -> None:
        self.handler = ClaimHandler(
            installation.settings,
            installation.sessions,
            installation.readers,
            engine,
            worker="w",
            device=device,
            stopping=stopping or threading.Event(),
            gate=gate,
        )
        grader = Grader(self.handler)
        self.build = grader.build
        self.evaluate = grader.evaluate
        self.diagnose = Diagnoser(self.handler).diagnose

    @property
    def current_submission(self) -> str | None:
        return self.handler.current_submission

    @property
    def busy_s(self) -> float:
        return self.handler.busy_s
