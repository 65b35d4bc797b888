"""The record of one vetting: the tests, their results, and their meaning."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any, Final

from evaluator.evaluation import Evaluation, Gradients, SpeedupStatus, Verdict
from kerneljudge.terms.vetting_labels import REFUSALS, Label

__all__ = ["NOT_VETTED", "Check", "Inputs", "Vetting", "refusal_of", "without_figures"]

NOT_VETTED: Final = "It is not vetted yet. Whatever passes first has it vetted, and so has kerneljudge problems check."
"""Why there are no speedups, where nothing is known against the problem."""


class Inputs(StrEnum):
    """The inputs of a check. ``given``: as ``get_inputs`` makes them. ``all``: all kinds of the judge's."""

    GIVEN = "given"
    ALL = "all"


@dataclass(frozen=True)
class Check:
    """One candidate that was tested. ``verdict`` of ``None``: the judge could not use the reference at all."""

    name: str
    inputs: Inputs
    verdict: Verdict | None
    gradients: Gradients
    message: str

    @property
    def passed(self) -> bool:
        return self.verdict is Verdict.PASSED


@dataclass(frozen=True)
class Vetting:
    """The findings about one version of a problem, at one size, on one device.

    ``refusals``: a sentence for each reason not to rank; none means that the problem is ranked.
    """

    problem: str
    version: str
    device: str
    size: str
    precision: str
    torch: str
    labels: tuple[Label, ...]
    refusals: tuple[str, ...]
    checks: tuple[Check, ...]

    def __post_init__(self) -> None:
        if bool(self.refusals) != any(label in REFUSALS for label in self.labels):
            raise ValueError("there are refusals exactly where a label refuses")

    @property
    def where(self) -> tuple[str, str, str]:
        """The conditions of the vetting: precision, kind of device and size."""
        return self.precision, self.device, self.size

    @property
    def refused(self) -> bool:
        return bool(self.refusals)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON-ready data; ``Vetting.from_dict`` takes it back."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Vetting:
        """Inverse of ``to_dict``. Raises ``KeyError``, ``TypeError`` or ``ValueError`` on foreign data."""
        checks = tuple(
            Check(
                check["name"],
                Inputs(check["inputs"]),
                None if check["verdict"] is None else Verdict(check["verdict"]),
                Gradients(check["gradients"]),
                check["message"],
            )
            for check in data["checks"]
        )
        labels = tuple(Label(label) for label in data["labels"])
        return cls(**{**data, "labels": labels, "refusals": tuple(data["refusals"]), "checks": checks})


def refusal_of(vettings: Iterable[Vetting]) -> str | None:
    """Why a problem with these vettings has neither speedups nor a leaderboard; ``None`` where it has."""
    found = list(vettings)
    if not found:
        return NOT_VETTED
    # A finding on two devices is reported once.
    return " ".join(dict.fromkeys(sentence for each in found for sentence in each.refusals)) or None


def without_figures(evaluation: Evaluation, refusal: str) -> Evaluation:
    """Return ``evaluation`` as it is shown where the problem is not vetted, or refused: without performance figures."""
    if not evaluation.passed:
        return evaluation
    return replace(
        evaluation.without_speedup(SpeedupStatus.NOT_VETTED),
        notes=(*evaluation.notes, f"no speedup: {refusal}"),
        details={name: value for name, value in evaluation.details.items() if name != "tracks"},
        samples={},
    )
