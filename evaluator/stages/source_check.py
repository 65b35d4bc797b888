"""The check of a candidate's source against its rules, before anything is built or evaluated. Torch-free."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from evaluator.evaluation import Evaluation, Verdict
from evaluator.results.assemble import conclude_early
from evaluator.source_rules.check import Break, find_breaks
from evaluator.task import EvaluationTask

__all__ = ["rejected_by_rules"]

_SHOWN: Final = 5


def rejected_by_rules(task: EvaluationTask, *, stage: str, environment: Mapping[str, Any]) -> Evaluation | None:
    """Return the verdict ``rejected`` where the candidate breaks a rule, else ``None``. Raises ``ProblemError``.

    ``details["broken_rules"]`` has each break. The time goes to ``stage``.
    """
    begin, problem = time.monotonic(), task.problem
    breaks = find_breaks(
        task.candidate.source,
        task.rules,
        least_precision=problem.least_precision(task.config.precision),
        reference=problem.source,
        tf32=problem.tf32_in(task.config),
    )
    if not breaks:
        return None
    return conclude_early(
        task,
        Verdict.REJECTED,
        _message(breaks),
        log="",
        stage_s={stage: time.monotonic() - begin},
        environment=environment,
        details={"broken_rules": [each.to_dict() for each in breaks]},
    )


def _message(breaks: Sequence[Break]) -> str:
    more = f"; and {len(breaks) - _SHOWN} more" if len(breaks) > _SHOWN else ""
    return f"the source breaks a rule: {'; '.join(map(str, breaks[:_SHOWN]))}{more}"
