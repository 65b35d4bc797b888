"""The bodies of requests about submissions."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue

from evaluator.config import SETTABLE_LIMITS
from evaluator.problems.problem import Problem, Tolerance
from evaluator.problems.requested import requested_problem
from kerneljudge.records import Baseline, DeviceKind, LanguageName, Precision, TierName, VisibilityName
from kerneljudge.terms.rules import Rules
from storage.submissions.metadata import MAX_DEPTH, MAX_METADATA_BYTES, checked_metadata

__all__ = [
    "DeviceRequirements",
    "Metadata",
    "PublishRequest",
    "ReferenceRequest",
    "RulesRequest",
    "SubmissionRequest",
    "WithdrawalRequest",
]


def _exactly_one(one: str, other: str) -> JsonValue:
    """Return the JSON schema of an object that has one of two fields."""
    return {
        "oneOf": [
            {"required": [given], "properties": {given: {"not": {"type": "null"}}, absent: {"type": "null"}}}
            for given, absent in ((one, other), (other, one))
        ]
    }


_CHOICES: Final[list[JsonValue]] = [_exactly_one("code", "response"), _exactly_one("problem", "reference")]


Metadata = Annotated[
    dict[str, Any],
    AfterValidator(checked_metadata),
    Field(
        description=f"A JSON object of yours, returned as you gave it. At most {MAX_METADATA_BYTES} bytes as JSON "
        f"without white space, and {MAX_DEPTH} objects or lists inside each other. Shown with the source."
    ),
]


class DeviceRequirements(BaseModel):
    """The requirements of a submission for its device. Null means no condition."""

    model_config = ConfigDict(extra="forbid", strict=True)

    device_name: str | None = Field(
        default=None, max_length=200, description="As `/api/v1/workers` and leaderboards have it: `NVIDIA H200`."
    )
    min_memory_gib: float | None = Field(default=None, gt=0, le=1_000_000, description="The device's whole memory.")
    min_compute_capability: str | None = Field(
        default=None, pattern=r"^\d{1,3}\.\d$", description="Of a `cuda` device: `9.0`."
    )


class ToleranceRequest(BaseModel):
    """The tolerance of an element: it is right within `atol * rms(expected) + rtol * |expected|`."""

    model_config = ConfigDict(extra="forbid", strict=True)

    atol: float = Field(gt=0, lt=1)
    rtol: float = Field(ge=0, lt=1)


class ReferenceRequest(BaseModel):
    """A reference of the submission's own, for a problem that is in no list and on no leaderboard."""

    model_config = ConfigDict(extra="forbid", strict=True)

    source: str = Field(
        description="A file in KernelBench's form: `Model`, `get_inputs` and `get_init_inputs`, with the sizes as "
        "they are to be judged. The service executes it, so it needs the scope `references`."
    )
    tolerance: ToleranceRequest | None = Field(
        default=None, description="At the submission's precision. Default: 1e-4 for `float32`, 1e-2 for half types."
    )
    gradient_policy: Literal["check", "require", "none"] = "check"
    input_domain: Literal["real", "as_written"] | None = Field(
        default=None,
        description="`real`: any finite value is a fair input. `as_written`: only values that `get_inputs` makes. "
        "Default: `real` where `get_inputs` only draws random numbers.",
    )
    row_independent: bool = Field(
        default=False, description="Whether rows do not influence each other, so that slices of rows save memory."
    )

    def to_problem(self, precision: Precision | None) -> Problem:
        """Return the problem. Raises ``ProblemError``."""
        dtype = precision or "float32"
        own: dict[str, Tolerance] = {}
        if self.tolerance is not None:
            own[dtype] = Tolerance(self.tolerance.atol, self.tolerance.rtol + 0)  # PostgreSQL has no minus zero
        return requested_problem(
            self.source,
            dtype=dtype,
            tolerances=own,
            gradient_policy=self.gradient_policy,
            input_domain=self.input_domain,
            row_independent=self.row_independent,
        )


class RulesRequest(BaseModel):
    """Rules about a candidate's source. They add to those of the problem, and never loosen them."""

    model_config = ConfigDict(extra="forbid", strict=True)

    languages: list[LanguageName] | None = Field(
        default=None,
        description="The allowed languages of its kernels. `torch`: it has none of its own. Default: all.",
    )
    forbidden_operators: list[str] | None = Field(
        default=None, description="Operators of torch that it may not call: `matmul`, `softmax`. Default: none."
    )
    no_lower_precision: bool | None = Field(
        default=None, description="Whether it may not compute in a precision below the problem's. Default: no."
    )

    def to_rules(self) -> Rules:
        """Return the rules. Raises ``ValueError`` naming the field."""
        return Rules.from_dict(self.model_dump(exclude_none=True))


class SubmissionRequest(BaseModel):
    """A candidate and the conditions of its grading.

    Exactly one of `code` and `response` is given, and exactly one of `problem` and `reference`.
    """

    # In strict mode, "yes" is not a boolean and 1 is not a text.
    model_config = ConfigDict(extra="forbid", strict=True, json_schema_extra={"allOf": _CHOICES})

    problem: str | None = Field(default=None, description="The problem's id, see `/api/v1/problems`.", max_length=200)
    reference: ReferenceRequest | None = Field(
        default=None, description="A reference of its own, where the service takes any and your key may send one."
    )
    code: str | None = Field(default=None, description="Python source that defines `ModelNew`.")
    response: str | None = Field(
        default=None,
        description="A raw model answer: the last fenced block that defines `ModelNew` is graded, reasoning ignored.",
    )
    device: DeviceKind | None = Field(
        default=None, description="Left out: `cuda` where a worker with a CUDA device is alive, else `cpu`."
    )
    size: str | None = Field(
        default=None,
        max_length=100,
        description="One of the problem's sizes. Left out: `full` on `cuda`; on `cpu` `smoke` where the problem has it "
        "(the full sizes are made for an accelerator: `relu` has 6 GiB of input), else `full`.",
    )
    precision: Precision | None = Field(default=None, description="Left out: the problem's own.")
    require_gradients: bool | None = Field(
        default=None, description="Whether missing gradients fail. Left out: the problem's policy."
    )
    baseline: Baseline | None = Field(
        default=None,
        description="The baseline of the speedup. Default: `eager`, the reference as it is, as leaderboards have it by "
        "default. `ieee`: the same without TF32, for the candidate too. `compile*`: the reference under "
        "`torch.compile`. Lower precisions need the problem's permission.",
    )
    limits: dict[str, float] | None = Field(
        default=None,
        description=f"In seconds, by name: {', '.join(SETTABLE_LIMITS)} (`call_factor` is a multiple of the baseline's "
        "call). They only lower the limits of the problem and of the machine. Default: these limits.",
    )
    tier: TierName | None = Field(
        default=None,
        description="`check`: the verdict alone; no call is timed, and there is no speedup. `quick`: a rough "
        "speedup, which aims at ± 2 % on `cuda` and ± 5 % on `cpu`. `full`: the speedup that leaderboards rank. All "
        "have the same trials, but only timed calls show an answer that is wrong there alone. Default: `full`.",
    )
    rules: RulesRequest | None = Field(
        default=None, description="Rules about the source, besides the problem's. A broken one is `rejected`."
    )
    label: str | None = Field(default=None, max_length=200, description="Your name for this candidate.")
    author: str | None = Field(default=None, max_length=200, description="The name on the leaderboard.")
    metadata: Metadata | None = None
    parent: str | None = Field(
        default=None,
        max_length=100,
        description="The id of the earlier submission that this candidate was derived from. Others see it where they "
        "see that submission.",
    )
    requirements: DeviceRequirements | None = Field(
        default=None, description="The devices that may evaluate it. Default: all of the kind."
    )
    visibility: VisibilityName | None = Field(
        default=None,
        description="The part that others see. `public`: everything; `source_hidden`: verdict, figures and place, but "
        "neither the source nor quotations of it; `private`: nothing, and it is on no leaderboard. The latter two need "
        "a key. Default: that of the batch, or `public`.",
    )


class PublishRequest(BaseModel):
    """The visibility to others from now on."""

    model_config = ConfigDict(extra="forbid", strict=True)

    visibility: VisibilityName


class WithdrawalRequest(BaseModel):
    """The reason for withdrawing an entry from the leaderboards."""

    model_config = ConfigDict(extra="forbid", strict=True)

    reason: str = Field(min_length=1, max_length=1000, description="Shown on the submission's page.")
