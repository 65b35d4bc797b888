"""The record of one vetting: what was tried, what came of it, and what that means."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from evaluator.evaluation import Gradients, Verdict
from evaluator.vetting.labels import REFUSALS, Label

__all__ = ["Check", "Inputs", "Vetting"]


class Inputs(StrEnum):
    """What a check was judged on. ``given``: as ``get_inputs`` makes them. ``all``: all that the judge has."""

    GIVEN = "given"
    ALL = "all"


@dataclass(frozen=True)
class Check:
    """One candidate that was tried. ``verdict`` of ``None``: the judge could not use the reference at all."""

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
    """What was found about one version of a problem, at one size, on one device.

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
    def refused(self) -> bool:
        return bool(self.refusals)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON-ready data; ``Vetting.from_dict`` takes it back."""
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
