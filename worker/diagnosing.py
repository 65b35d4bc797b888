"""The task of a diagnosis: a submission's candidate is run under a tool, and the findings are recorded."""

from __future__ import annotations

from evaluator.config import EvalConfig
from evaluator.engine import Callbacks, Progress
from storage.grading.diagnoses import Diagnoses, DiagnosisClaim, evaluation_waits
from worker.claim_handler import ClaimHandler, Record

__all__ = ["Diagnoser"]


class Diagnoser:
    """Diagnoses submissions on the device of a ``handler``, which is not a builder's."""

    def __init__(self, handler: ClaimHandler) -> None:
        self._handler = handler

    def diagnose(self) -> None:
        """Run the next candidate to be diagnosed under its tool; stop as soon as a submission waits to be evaluated."""
        handler = self._handler

        def work_on(claim: DiagnosisClaim) -> None:
            work = handler.begin(str(claim.tool), Diagnoses, claim, evaluation_waits)
            work.finish(lambda: self._diagnose(claim, work.callbacks))

        handler.take(
            lambda session: Diagnoses(session).claim_next(
                handler.engine.tools, handler.worker, handler.settings.lease_s
            ),
            work_on,
        )

    def _diagnose(self, claim: DiagnosisClaim, callbacks: Callbacks) -> Record:
        handler = self._handler
        device = handler.device
        assert device is not None
        for size in _sizes(claim):
            callbacks.progress(Progress("diagnosing", f"size {size}"))
            config = EvalConfig(device=device, size=size, precision=claim.precision)
            found = handler.engine.diagnose(
                claim.problem, claim.candidate, config, claim.tool, cancelled=callbacks.cancelled
            )
            if found.faults or found.obstacle:
                break
        return lambda session: Diagnoses(session).record(claim, found)


def _sizes(claim: DiagnosisClaim) -> tuple[str, ...]:
    """Return the sizes to run in order until there is a finding.

    After a device fault, the submission's size is the last, because a candidate may fault at a large size alone.
    """
    usual = claim.tool.usual_size(claim.problem.sizes, claim.size)
    return (usual, claim.size) if claim.faulted and usual != claim.size else (usual,)
