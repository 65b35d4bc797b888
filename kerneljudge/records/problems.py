"""Problems."""

from __future__ import annotations

from typing import Literal

from typing_extensions import TypedDict

from kerneljudge.records.types import Baseline, DeviceKind, LabelName, LanguageName, Precision, Timestamp

__all__ = [
    "KernelBenchRecord",
    "ProblemList",
    "ProblemRecord",
    "ProblemSummary",
    "RulesRecord",
    "ShapeRecord",
    "ToleranceRecord",
    "VettedOn",
]


class ToleranceRecord(TypedDict):
    """The tolerance of an element: it is right within `atol * rms(expected) + rtol * |expected|`."""

    atol: float
    rtol: float


class KernelBenchRecord(TypedDict):
    """The level, number and name of a KernelBench problem."""

    level: int
    problem_id: int
    name: str


class RulesRecord(TypedDict, total=False):
    """Rules about a candidate's source: those that are set. A broken one is the verdict `rejected`."""

    languages: list[LanguageName]
    """The allowed languages of its kernels. `torch`: it has none of its own."""
    forbidden_operators: list[str]
    """The operators of torch that it may not call, such as `matmul`."""
    no_lower_precision: bool
    """Whether it may not compute in a precision below the problem's."""


class ShapeRecord(TypedDict):
    """A further shape of a size."""

    use: Literal["timed", "checked"]
    values: dict[str, int | float]
    """The reference's globals that differ from the size's."""


class VettedOn(TypedDict):
    """The version of a problem that was vetted, and the conditions of its vetting."""

    version: str
    device: DeviceKind
    size: str
    precision: Precision
    torch: str
    stale: bool
    """The problem has changed since, so the findings are left out."""


class ProblemSummary(TypedDict):
    """A problem without its source."""

    id: str
    version: str
    title: str
    description: str
    dtype: Precision
    sizes: dict[str, dict[str, int | float]]
    """The reference's globals at each size."""
    shapes: dict[str, dict[str, ShapeRecord]]
    """Further shapes by size and name. A candidate must be right at each of its size."""
    held_out_shapes: dict[str, int]
    """The numbers of shapes that are never shown, by size."""
    gradient_policy: Literal["check", "require", "none"]
    tf32: bool
    """Whether it has convolutions or recurrent layers, which may round to TF32 on a GPU as PyTorch lets them."""
    input_domain: Literal["real", "as_written"]
    tolerances: dict[str, ToleranceRecord]
    tags: list[str]
    baselines: list[Baseline]
    """The baselines that a submission may name."""
    rules: RulesRecord
    """The rules about every candidate's source; a submission may add to them."""
    kernelbench: KernelBenchRecord | None
    labels: list[LabelName] | None
    """The findings of vetting, see *Vetting* in the documentation of the method; null: this version was never vetted.
    """
    ranked: bool
    """Whether it has leaderboards. A problem that was not vetted has some, unless vetting is required."""
    refusal: str | None
    """The reason for missing leaderboards."""
    vetting: VettedOn | None
    visibility: Literal["public", "private"]
    """`private`: a problem of a client, which others are told nothing of."""
    owner: str | None
    """The client that created it, for those who may change it; null: it came with the service, or is another's."""


class ProblemRecord(ProblemSummary):
    """A problem with the source of its reference."""

    reference: str
    """The reference's Python source, at its `full` size."""
    versions: list[str]
    """The current version, then the earlier ones, the newest first."""
    withdrawn_at: Timestamp | None
    """The time when it was taken off every list; null: it is on them."""


class ProblemList(TypedDict):
    """All problems to which candidates can be submitted, by id."""

    items: list[ProblemSummary]
