"""Grading in the plain way (``benchmarks.plain_way``), in an interpreter and an extension folder of its own."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from evaluator.interpreter import python_command, python_environment
from evaluator.problems.problem import Problem
from tests.corpus import Case

__all__ = ["PlainGrade", "grade_plainly"]

_LIMIT_S = 900.0
_ROOT = Path(__file__).parent.parent


@dataclass(frozen=True)
class PlainGrade:
    """The result. ``seconds`` are from the start of the interpreter to its end, and ``stage_s`` are their parts."""

    seconds: float
    correct: bool
    speedup: float
    stage_s: dict[str, float]


def grade_plainly(case: Case, problem: Problem, device: str, size: str) -> PlainGrade | None:
    """Grade ``case`` once; ``None`` where the plain way gives no figures."""
    with tempfile.TemporaryDirectory(prefix="kerneljudge-plain-") as name:
        folder = Path(name)
        (folder / "reference.py").write_text(problem.sized_source(size), encoding="utf-8")
        (folder / "candidate.py").write_text(case.source, encoding="utf-8")
        begin = time.monotonic()
        ended = subprocess.run(
            python_command("-m", "benchmarks.plain_way", "--device", device, "reference.py", "candidate.py"),
            cwd=folder,
            env=python_environment(os.environ) | {"TORCH_EXTENSIONS_DIR": str(folder / "extensions")},
            capture_output=True,
            text=True,
            timeout=_LIMIT_S,
        )
        seconds = time.monotonic() - begin
    return None if ended.returncode else PlainGrade(seconds, **json.loads(ended.stdout.splitlines()[-1]))
