"""The examination of a foreign reference in the sandbox. Nothing of it is executed in this process. Torch-free."""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any, Final, Protocol

from evaluator.candidates.candidate import Candidate
from evaluator.config import EvalConfig, Limits
from evaluator.evaluation import Evaluation
from evaluator.problems.importing.findings import Findings, read_findings
from evaluator.problems.module_constants import integers, rewritten
from evaluator.problems.problem import Problem
from evaluator.problems.published import Published, Unusable

__all__ = ["SMOKE_BYTES", "SMOKE_OPERATIONS", "BuildOutcome", "Sandbox", "examine"]

SMOKE_BYTES: Final = 8 * 2**20
SMOKE_OPERATIONS: Final = 2 * 10**8
"""The most bytes and operations of a forward pass at ``smoke``: tens of milliseconds on a CPU."""

_LIMITS: Final = Limits(load_s=600.0)
_SCRIPT: Final = Path(__file__).with_name("examination.py")
# A module that is no reference: the foreign reference is a text in the script, which executes it.
_STAND_IN: Final = Problem(
    id="examination",
    title="Examination",
    description="Stands where a runner expects a problem.",
    source="def get_init_inputs():\n    return []\n",
    sizes={"full": {}},
)
_LEAST: Final = 16
_MIN_BATCH: Final = 4
_FLOOR: Final = 8
_BATCH_FLOOR: Final = 2
_BATCH: Final = re.compile(r"batch|^b$|^bs$", re.IGNORECASE)
_STRUCTURE: Final = re.compile(
    r"kernel|stride|pad|dilat|group|head|patch|window|block|ratio|scale|factor|value|divi|num_layers|^layers",
    re.IGNORECASE,
)
_GROUPS: Final = re.compile(r"groups?$", re.IGNORECASE)


class BuildOutcome(Protocol):
    """The part of a build's report that is used here."""

    @property
    def evaluation(self) -> Evaluation | None: ...
    @property
    def log(self) -> str: ...


class Sandbox(Protocol):
    """The part of an engine that is used here: it imports a module in a runner without a device."""

    def build(self, problem: Problem, candidate: Candidate, config: EvalConfig) -> BuildOutcome: ...


def examine(published: Published, sandbox: Sandbox, scale: Fraction | None) -> Findings:
    """Find the reference's properties, and its possible sizes.

    Raises ``Unusable`` with the reason, and the errors of ``Engine.build`` for faults of ours.
    """
    values = integers(published.module)
    mark = secrets.token_hex(16)
    request = {
        "mark": mark,
        "source": rewritten(published.source, {name: f"_SIZES[{name!r}]" for name in values}),
        "values": values,
        "smoke": {"bytes": SMOKE_BYTES, "operations": SMOKE_OPERATIONS},
        "scale": None if scale is None else float(scale),
        "drawn": published.drawn,
        **_shrinkable(values),
    }
    script = _SCRIPT.read_text(encoding="utf-8") + f"\n\nreport(json.loads({json.dumps(request)!r}))\n"
    candidate = Candidate(script, hashlib.sha256(script.encode()).hexdigest(), "code")
    built = sandbox.build(_STAND_IN, candidate, EvalConfig(limits=_LIMITS))
    if built.evaluation is not None:
        raise Unusable(f"looking at it took longer than {_LIMITS.load_s:.0f} s")
    report = _report(built.log, mark)
    if report is None:
        raise Unusable("the process that examined it ended without a report: out of memory, or ended by the reference")
    if isinstance(report, dict) and isinstance(report.get("refused"), str):
        raise Unusable(report["refused"])
    try:
        return read_findings(report, values)
    except ValueError as error:
        raise Unusable(f"the process that examined it gave no report: {error}") from error


def _shrinkable(values: Mapping[str, int]) -> dict[str, Any]:
    """Return the constants that are sizes, by name and value, and the smallest allowed value of each.

    Structural constants (a kernel, a stride, a number of heads) stay. A constant that is no size shows in the halving,
    because nothing becomes smaller by it.
    """
    batches = {name for name in values if _BATCH.search(name)}
    sizes = [
        name
        for name, value in values.items()
        if value >= (_MIN_BATCH if name in batches else _LEAST) and not _STRUCTURE.search(name)
    ]
    return {
        "shrink": sizes,
        "floors": {name: _BATCH_FLOOR if name in batches else _FLOOR for name in sizes},
        "groups": [name for name, value in values.items() if value >= _LEAST and _GROUPS.search(name)],
    }


def _report(log: str, mark: str) -> Any:
    """Return the JSON behind the last ``mark`` that is followed by JSON."""
    for line in reversed(log.splitlines()):
        if line.startswith(mark):
            try:
                return json.loads(line.removeprefix(mark))
            except (ValueError, RecursionError):
                return None
    return None
