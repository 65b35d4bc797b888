"""The standing corpus: candidates, each with the verdict that it must get.

``tests/candidates/<case>/`` holds ``candidate.py`` and ``expected.toml``; CONTRIBUTING.md has the fields. Where no
problem of the repository shows it, the folder ``problem`` beside them holds one: its id is the name of the case, and
other cases may name it.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from evaluator.candidates.candidate import Candidate, InvalidSource, parse_candidate
from evaluator.config import EvalConfig, Limits, SamplingPlan
from evaluator.evaluation import Evaluation, Gradients, SpeedupStatus, Verdict
from evaluator.problems.loading import load_problem, load_problems
from evaluator.problems.problem import Problem

__all__ = ["ATTACKS", "CANDIDATES", "FALSE_SPEEDUP", "KINDS", "Case", "known_problems", "load_case", "load_cases"]

CANDIDATES = Path(__file__).parent / "candidates"
_REFERENCE_MODELS = Path(__file__).parent.parent / "reference_models"
KINDS = ("honest", "wrong", "hostile")
DEVICES = ("any", "cpu", "cuda")
ATTACKS = {
    "A": "timing evasion",
    "B": "output reuse",
    "C": "answer theft and tampering",
    "D": "not doing the work",
    "E": "inputs and problem",
    "F": "precision",
    "G": "checker logic",
    "H": "system, build, infrastructure",
    "I": "shared device memory",
    "bomb": "resource bombs",
}
"""Classes of attacks."""
FALSE_SPEEDUP = 1.5
"""An attack that passes must not be faster than this, with 95 % confidence."""
# What is looked at are verdicts: a few samples are enough, and the speedups' bounds are wide.
_SAMPLING = SamplingPlan(min_samples=10, max_samples=10, warm_samples=0)
_BRIEFLY = SamplingPlan(min_samples=6, max_samples=6, warm_samples=0, budget_s=0.0, settles=False)
"""Three pairs, and more where the clocks disagree: for those that are not to be held to any speedup."""
_UNTIMED = SamplingPlan(max_samples=0)


@dataclass(frozen=True)
class Case:
    """A candidate and what must come of it.

    ``device`` of ``any``: the same on every device. ``gradients`` of ``None``: not a matter of this case.
    ``message_contains``: each must occur in the evaluation's message or hints. The speedups are bounds on the
    interval. A status of ``None``: no matter of this case, but that an honest one's weights are not fixed.
    ``verdicts`` has one entry, but for hostile cases: these may end in several ways, and may even pass, as long as
    nothing was gained. ``attack`` is the class of a hostile case.
    """

    name: str
    source: str
    description: str
    kind: str
    problem: str
    device: str
    size: str
    verdicts: tuple[Verdict, ...]
    attack: str | None = None
    precision: str = "float32"
    limits: Limits = field(default_factory=Limits)
    gradients: Gradients | None = None
    message_contains: tuple[str, ...] = ()
    speedup_at_least: float | None = None
    speedup_at_most: float | None = None
    speedup_status: SpeedupStatus | None = None
    speedup_training_status: SpeedupStatus | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"{self.name}: kind must be one of {', '.join(KINDS)}, not {self.kind!r}")
        if self.device not in DEVICES:
            raise ValueError(f"{self.name}: device must be one of {', '.join(DEVICES)}, not {self.device!r}")
        if self.kind == "honest" and self.verdicts != (Verdict.PASSED,):
            raise ValueError(f"{self.name}: an honest candidate passes")
        if self.kind == "wrong" and Verdict.PASSED in self.verdicts:
            raise ValueError(f"{self.name}: a wrong candidate does not pass")
        if (self.kind == "hostile") != (self.attack is not None):
            raise ValueError(f"{self.name}: hostile cases, and no others, have the class of their attack")
        if self.attack is not None and self.attack not in ATTACKS:
            raise ValueError(f"{self.name}: attack must be one of {', '.join(ATTACKS)}, not {self.attack!r}")
        if self.kind != "hostile" and len(self.verdicts) != 1:
            raise ValueError(f"{self.name}: only a hostile case may end in several ways")

    @property
    def is_about_time(self) -> bool:
        """Whether a hostile case evades the clock, exhausts the machine or reaches its own limits: other programs on
        the machine change the outcome then."""
        return self.attack in ("A", "bomb") or (self.kind == "hostile" and self.limits != Limits())

    def config(self, device: str, *, timed: bool = True, briefly: bool = False) -> EvalConfig:
        """The settings that the case is judged with on ``device``. Not ``timed``: by its verdict alone, where nothing
        that is expected of it is about figures. ``briefly``: with a few timed calls, whatever is expected of these."""
        held = self.kind == "hostile" or self.speedup_at_least is not None or self.speedup_at_most is not None
        untimed = not (timed or held or self.speedup_status or self.speedup_training_status)
        return EvalConfig(
            device=device,
            size=self.size,
            precision=self.precision,
            limits=self.limits,
            sampling=_SAMPLING if held and not briefly else _UNTIMED if untimed else _BRIEFLY,
        )

    def candidate(self) -> Candidate | InvalidSource:
        return parse_candidate(code=self.source)

    def complaints(self, result: Evaluation | InvalidSource) -> list[str]:
        """What is not as expected, in words; empty where everything is."""
        verdict = Verdict.INVALID_SOURCE if isinstance(result, InvalidSource) else result.verdict
        if verdict not in self.verdicts:
            return [f"{verdict}, expected {' or '.join(self.verdicts)}: {result.message}"]
        said = " ".join((result.message, *result.hints))
        found = [f"{part!r} is not in: {said}" for part in self.message_contains if part not in said]
        if isinstance(result, InvalidSource):
            return found
        if self.gradients is not None and result.gradients is not self.gradients:
            found.append(f"gradients {result.gradients}, expected {self.gradients}: {result.message}")
        for status, expected in (
            (result.speedup_status, self.speedup_status),
            (result.speedup_training_status, self.speedup_training_status),
        ):
            if expected is None and self.kind == "honest" and status is SpeedupStatus.WEIGHTS_FIXED:
                found.append(f"its weights are fixed: {' '.join(result.notes)}")
            elif expected is not None and status not in _statuses(expected):
                found.append(f"speedup {status}, expected {expected}: {' '.join(result.notes)}")
        interval = result.speedup_interval
        if self.speedup_at_least is not None and not (interval and interval.high >= self.speedup_at_least):
            found.append(f"speedup {interval}, expected at least {self.speedup_at_least}")
        at_most = FALSE_SPEEDUP if self.kind == "hostile" and self.speedup_at_most is None else self.speedup_at_most
        intervals = (interval, result.speedup_warm_interval, result.speedup_training_interval)
        measured = [each for each in intervals if each is not None]
        return found + [
            f"speedup {each}, expected at most {at_most}"
            for each in measured
            if at_most is not None and not each.low <= at_most
        ]

    @property
    def verdict(self) -> Verdict:
        """The first, and for all but hostile cases the only one."""
        return self.verdicts[0]

    def runs_on(self, device_kind: str) -> bool:
        """Whether the case says something about ``cpu`` or ``cuda``."""
        return self.device in ("any", device_kind)


def _statuses(expected: SpeedupStatus) -> tuple[SpeedupStatus, ...]:
    """On a busy machine measured figures may be unsettled; that the weights are fixed does not depend on it."""
    return (expected, SpeedupStatus.UNSETTLED) if expected is SpeedupStatus.MEASURED else (expected,)


def known_problems() -> dict[str, Problem]:
    """The problems of the repository, and those that cases bring along, by id."""
    problems = load_problems(_REFERENCE_MODELS)
    for path in sorted(CANDIDATES.glob("*/problem/problem.toml")):
        name = path.parent.parent.name
        problems[name] = replace(load_problem(path.parent), id=name)
    return problems


def load_cases() -> list[Case]:
    """Every case, by name."""
    return [load_case(path.parent.name) for path in sorted(CANDIDATES.glob("*/expected.toml"))]


def load_case(name: str) -> Case:
    """One case. Raises ``ValueError`` for a field that is unknown, missing or wrong."""
    folder = CANDIDATES / name
    expected: dict[str, Any] = tomllib.loads((folder / "expected.toml").read_text(encoding="utf-8"))
    verdicts = expected.pop("verdict", None)
    verdicts = [verdicts] if isinstance(verdicts, str) else verdicts
    unknown = set(expected) - {field.name for field in fields(Case)} | {"verdicts"} & set(expected)
    if unknown:
        raise ValueError(f"{name}: unknown field {min(unknown)!r}")
    if not verdicts:
        raise ValueError(f"{name}: the verdict is missing")
    if (folder / "problem").is_dir():
        expected.setdefault("problem", name)
    expected["verdicts"] = tuple(
        Verdict(verdict) for verdict in ([verdicts] if isinstance(verdicts, str) else verdicts)
    )
    expected["limits"] = Limits(**expected.get("limits", {}))
    if "gradients" in expected:
        expected["gradients"] = Gradients(expected["gradients"])
    for status in {"speedup_status", "speedup_training_status"} & set(expected):
        expected[status] = SpeedupStatus(expected[status])
    expected["message_contains"] = tuple(expected.get("message_contains", ()))
    source = (folder / "candidate.py").read_text(encoding="utf-8")
    try:
        return Case(name=name, source=source, **expected)
    except TypeError as error:
        raise ValueError(f"{name}: {error}") from error
