"""Plans for a GPU that is not there: ``python -m evaluator.judge.planning``, a process of ``evaluator.planning``.

Reads lines of JSON (a problem, a size, a precision, the bytes of the device) and answers each with one. Shapes come
from torch's meta device, so nothing is computed.
"""

from __future__ import annotations

import json
import sys
from typing import Any, Final

from evaluator.errors import ProblemError
from evaluator.judge.device import Capacity, CpuDevice
from evaluator.judge.plan import draft_plan
from evaluator.judge.reference import Reference
from evaluator.problem import Problem

__all__ = ["main", "planned"]

_CONTEXTS: Final = 2
"""A candidate and a baseline come to the device meanwhile, and wait for the next evaluation."""


def main() -> None:
    """Answer until there is nothing more to read."""
    answers, sys.stdout = sys.stdout, sys.stderr  # a reference may print
    for line in sys.stdin:
        print(json.dumps(planned(json.loads(line))), file=answers, flush=True)


def planned(asked: dict[str, Any]) -> dict[str, Any]:
    """The plan, or the reason why there is none, as ``evaluator.planning.Planned`` has them."""
    problem = Problem.from_dict(asked["problem"])
    try:
        signature = Reference(problem, asked["size"], asked["precision"], CpuDevice()).signature
    except ProblemError as error:
        return {"planned_bytes": None, "room_bytes": None, "lean": False, "message": str(error)}
    plan = draft_plan(
        signature,
        Capacity.of_cuda(asked["total_bytes"]),
        sliced=problem.row_independent and signature.rows is not None,
        gradients=problem.gradient_policy != "none" and signature.differentiable,
        limit=None,
        contexts=_CONTEXTS,
        candidates=1,
    )
    return {
        "planned_bytes": plan.peak_bytes,
        "room_bytes": plan.room_bytes,
        "lean": plan.lean,
        "message": plan.describe(),
    }


if __name__ == "__main__":
    main()
