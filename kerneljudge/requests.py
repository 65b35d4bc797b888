"""The options of new submissions as typed dictionaries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from typing_extensions import Required, TypedDict

from kerneljudge.records import RulesRecord

__all__ = ["NewProblem", "NewSubmission", "Reference", "Requirements", "SubmissionOptions", "Tolerance"]


class Requirements(TypedDict, total=False):
    """The requirements for the device. ``None`` means no condition."""

    device_name: str | None
    min_memory_gib: float | None
    min_compute_capability: str | None


class Tolerance(TypedDict):
    """The tolerance of an element: it is right within ``atol * rms(expected) + rtol * |expected|``."""

    atol: float
    rtol: float


class Reference(TypedDict, total=False):
    """A reference of a submission's own, in KernelBench's form, with the policies of its problem."""

    source: Required[str]
    tolerance: Tolerance | None
    gradient_policy: str
    input_domain: str | None
    row_independent: bool


class SubmissionOptions(TypedDict, total=False):
    """The options and names of a submission. The service decides those that are left out."""

    device: str | None
    size: str | None
    precision: str | None
    require_gradients: bool | None
    baseline: str | None
    limits: Mapping[str, float] | None
    tier: str | None
    rules: RulesRecord | None
    label: str | None
    author: str | None
    metadata: Mapping[str, Any] | None
    parent: str | None
    requirements: Requirements | None
    visibility: str | None


class NewProblem(TypedDict, total=False):
    """A new problem, or a new version of one: the source of its reference, and fields as in ``problem.toml``."""

    source: Required[str]
    title: str | None
    description: str | None
    dtype: str | None
    sizes: Mapping[str, Mapping[str, int | float]] | None
    tolerance: Mapping[str, Tolerance] | None
    gradients: Mapping[str, str] | None
    inputs: Mapping[str, str] | None
    reference: Mapping[str, bool] | None
    tags: Sequence[str] | None
    baselines: Mapping[str, Sequence[str]] | None
    shapes: Mapping[str, Mapping[str, Any]] | None
    neighbours: Mapping[str, Any] | None
    held_out_salt: str | None
    rules: RulesRecord | None


class NewSubmission(SubmissionOptions, total=False):
    """A new submission: the fields of the API's request, and the key that identifies a repeated request.

    It has either a ``problem`` or a ``reference``, and either ``code`` or a ``response``.
    """

    problem: str | None
    reference: Reference | None
    code: str | None
    response: str | None
    idempotency_key: str | None
