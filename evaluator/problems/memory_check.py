"""Whether problems fit on a GPU of so much memory, which need not be present.

A process of its own plans; this module is torch-free.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from evaluator.interpreter import python_command, python_environment
from evaluator.problems.problem import Problem

__all__ = ["Planned", "plan_each"]

_ANSWER_S: Final = 120.0
"""Nothing is computed: a reference whose shapes take longer to find is in a loop."""


@dataclass(frozen=True)
class Planned:
    """The memory plan of an evaluation: needed and available bytes; ``None`` where the reference is at fault.

    ``lean``: candidate and baseline would take turns. ``scale``: the share of the problem's bytes that fits, such as
    ``1/4``, of one, a half and so on; ``None`` where hardly any does. ``message``: the parts of the need, or the fault.
    """

    problem: str
    size: str
    precision: str
    planned_bytes: int | None
    room_bytes: int | None
    lean: bool
    scale: str | None
    message: str

    @property
    def fits(self) -> bool:
        """Whether an evaluation is not refused for want of memory."""
        return self.planned_bytes is not None and self.room_bytes is not None and self.planned_bytes <= self.room_bytes


def plan_each(wanted: Sequence[tuple[Problem, str, str]], total_bytes: int) -> Iterator[Planned]:
    """Plan each problem at a size and in a precision for a GPU of ``total_bytes`` bytes, one after the other.

    A reference that ends the process is at fault for itself alone.
    """
    process: subprocess.Popen[str] | None = None
    try:
        for problem, size, precision in wanted:
            process = process or _start()
            asked = {"problem": problem.to_dict(), "size": size, "precision": precision, "total_bytes": total_bytes}
            answer = _answer(process, asked)
            if answer is None:
                status, process = _end(process), None
                nothing = {"planned_bytes": None, "room_bytes": None, "lean": False, "scale": None}
                answer = nothing | {"message": f"the reference ended the process that plans ({status}), or never ends"}
            yield Planned(problem.id, size, precision, **answer)
    finally:
        if process is not None:
            _end(process)


def _start() -> subprocess.Popen[str]:
    return subprocess.Popen(
        python_command("-m", "evaluator.judge.memory_check_process"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=python_environment(os.environ),
        text=True,
    )


def _answer(process: subprocess.Popen[str], asked: dict[str, Any]) -> dict[str, Any] | None:
    """Return the process's answer; ``None`` where it has ended, or does not answer in time."""
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(json.dumps(asked) + "\n")
        process.stdin.flush()
    except BrokenPipeError:
        return None
    readable, _, _ = select.select([process.stdout], [], [], _ANSWER_S)
    line = process.stdout.readline() if readable else ""
    return json.loads(line) if line else None


def _end(process: subprocess.Popen[str]) -> int:
    """End the process; returns its exit status, or minus the signal's number."""
    try:
        status: int = process.wait(timeout=0 if process.poll() is None else None)
    except subprocess.TimeoutExpired:
        process.kill()
        status = process.wait()
    for stream in (process.stdin, process.stdout):
        assert stream is not None
        try:
            stream.close()
        except BrokenPipeError:  # of unwritten output
            continue
    return status
