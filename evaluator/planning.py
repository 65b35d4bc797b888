"""Whether problems fit on a GPU of so much memory, which need not be there. Torch-free: a process of its own plans."""

from __future__ import annotations

import json
import math
import os
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from evaluator.errors import InfrastructureFault
from evaluator.interpreter import python_command, python_environment
from evaluator.problem import Problem

__all__ = ["Planned", "fitting_share", "plan_each"]


@dataclass(frozen=True)
class Planned:
    """What an evaluation of a problem would take, in bytes, and what there is room for; ``None`` where the reference is
    at fault. ``lean``: candidate and baseline would take turns. ``message``: of what it consists, or the fault."""

    problem: str
    size: str
    precision: str
    planned_bytes: int | None
    room_bytes: int | None
    lean: bool
    message: str

    @property
    def fits(self) -> bool:
        """Whether an evaluation is not refused for want of memory."""
        return self.planned_bytes is not None and self.room_bytes is not None and self.planned_bytes <= self.room_bytes

    @property
    def scale(self) -> str | None:
        """Where it does not fit, the share of its bytes that would, such as ``1/4``: what is planned grows with
        them."""
        if self.fits or self.planned_bytes is None or self.room_bytes is None:
            return None
        return fitting_share(self.planned_bytes, self.room_bytes)


def fitting_share(planned_bytes: int, room_bytes: int) -> str | None:
    """The largest share of a problem's bytes that fits where all of them do not, such as ``1/4``; ``None`` where there
    is no room at all. About: what is planned grows with the bytes, but for what each process takes."""
    return f"1/{2 ** math.ceil(math.log2(planned_bytes / room_bytes))}" if room_bytes > 0 else None


def plan_each(wanted: Sequence[tuple[Problem, str, str]], total_bytes: int) -> Iterator[Planned]:
    """Plan each problem at a size and in a precision for a GPU of so many bytes, one after the other.

    Raises ``InfrastructureFault`` where the process ends.
    """
    with subprocess.Popen(
        python_command("-m", "evaluator.judge.planning"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=python_environment(os.environ),
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            for problem, size, precision in wanted:
                asked = {"problem": problem.to_dict(), "size": size, "precision": precision, "total_bytes": total_bytes}
                process.stdin.write(json.dumps(asked) + "\n")
                process.stdin.flush()
                answer = process.stdout.readline()
                if not answer:
                    raise InfrastructureFault(f"planning {problem.id} ended with exit status {process.wait()}")
                yield Planned(problem.id, size, precision, **json.loads(answer))
        finally:
            process.stdin.close()
            process.terminate()
