"""The standing corpus: candidates, each with the verdict that it must get.

``tests/candidates/<case>/`` holds ``candidate.py`` and ``expected.toml``; CONTRIBUTING.md has the fields.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from evaluator.evaluation import Gradients, Verdict

__all__ = ["CANDIDATES", "Case", "load_case", "load_cases"]

CANDIDATES = Path(__file__).parent / "candidates"
KINDS = ("honest", "wrong", "hostile")
DEVICES = ("any", "cpu", "cuda")


@dataclass(frozen=True)
class Case:
    """A candidate and what must come of it.

    ``device`` of ``any``: the same on every device. ``gradients`` of ``None``: not a matter of this case.
    ``message_contains``: each must occur in the evaluation's message or hints. The speedups are bounds.
    """

    name: str
    source: str
    description: str
    kind: str
    problem: str
    device: str
    size: str
    verdict: Verdict
    gradients: Gradients | None = None
    message_contains: tuple[str, ...] = ()
    speedup_at_least: float | None = None
    speedup_at_most: float | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"{self.name}: kind must be one of {', '.join(KINDS)}, not {self.kind!r}")
        if self.device not in DEVICES:
            raise ValueError(f"{self.name}: device must be one of {', '.join(DEVICES)}, not {self.device!r}")
        if self.kind == "honest" and self.verdict is not Verdict.PASSED:
            raise ValueError(f"{self.name}: an honest candidate passes")
        if self.kind != "honest" and self.verdict is Verdict.PASSED:
            raise ValueError(f"{self.name}: a candidate that is not honest does not pass")

    def runs_on(self, device_kind: str) -> bool:
        """Whether the case says something about ``cpu`` or ``cuda``."""
        return self.device in ("any", device_kind)


def load_cases() -> list[Case]:
    """Every case, by name."""
    return [load_case(path.parent.name) for path in sorted(CANDIDATES.glob("*/expected.toml"))]


def load_case(name: str) -> Case:
    """One case. Raises ``ValueError`` for a field that is unknown, missing or wrong."""
    folder = CANDIDATES / name
    expected: dict[str, Any] = tomllib.loads((folder / "expected.toml").read_text(encoding="utf-8"))
    unknown = set(expected) - {field.name for field in fields(Case)}
    if unknown:
        raise ValueError(f"{name}: unknown field {min(unknown)!r}")
    expected["verdict"] = Verdict(expected["verdict"])
    if "gradients" in expected:
        expected["gradients"] = Gradients(expected["gradients"])
    expected["message_contains"] = tuple(expected.get("message_contains", ()))
    source = (folder / "candidate.py").read_text(encoding="utf-8")
    try:
        return Case(name=name, source=source, **expected)
    except TypeError as error:
        raise ValueError(f"{name}: {error}") from error
