"""Plans for a GPU that is absent: ``python -m evaluator.judge.memory_check_process``, a process of
``evaluator.problems.memory_check``.

It reads lines of JSON (a problem, a size, a precision, the bytes of the device) and answers each with one. Shapes come
from torch's meta device, so nothing is computed.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any, Final

from evaluator.errors import ProblemError
from evaluator.judge.correctness.reference import Reference
from evaluator.judge.device.cpu import CpuDevice
from evaluator.judge.device.cuda import cuda_capacity
from evaluator.judge.memory_plan import draft_plan, fitting_share
from evaluator.judge.reference_memory import use_of
from evaluator.problems.problem import Problem

__all__ = ["main", "planned"]

_CONTEXTS: Final = 2
"""A candidate and a baseline come to the device meanwhile, and wait for the next evaluation."""


def main() -> None:
    """Answer until there is nothing more to read."""
    # A reference may print, and so may processes that it starts.
    with os.fdopen(os.dup(1), "w") as answers:
        os.dup2(2, 1)
        device = CpuDevice()
        for line in sys.stdin:
            print(json.dumps(planned(json.loads(line), device)), file=answers, flush=True)


def planned(asked: dict[str, Any], device: CpuDevice) -> dict[str, Any]:
    """Return the plan, or the reason why there is none, as in ``evaluator.problems.memory_check.Planned``. ``device``:
    the device for tracing the reference."""
    problem = Problem.from_dict(asked["problem"])
    try:
        reference = Reference(problem, asked["size"], asked["precision"], device)
    except (ProblemError, SystemExit) as error:
        return {"planned_bytes": None, "room_bytes": None, "lean": False, "scale": None, "message": str(error)}
    signature, capacity = reference.signature, cuda_capacity(asked["total_bytes"])
    sliced = problem.in_slices and signature.sliced_rows is not None
    gradients = problem.gradient_policy != "none" and signature.differentiable
    use = use_of(problem, reference, capacity.slice_elements if sliced else None, gradients=gradients)
    plan = draft_plan(
        signature, use, capacity, sliced=sliced, gradients=gradients, limit=None, contexts=_CONTEXTS, candidates=1
    )
    scale = fitting_share(signature, use, capacity, sliced=sliced, gradients=gradients, limit=None, contexts=_CONTEXTS)
    return {
        "planned_bytes": plan.peak_bytes,
        "room_bytes": max(0, plan.room_bytes),
        "lean": plan.lean,
        "scale": scale,
        "message": plan.describe(),
    }


if __name__ == "__main__":
    main()
