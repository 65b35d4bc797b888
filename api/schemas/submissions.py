"""The bodies of requests about submissions."""

from __future__ import annotations

from typing import Annotated, Any, Final

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue

from evaluator.config import SETTABLE_LIMITS
from kerneljudge.records import Baseline, DeviceKind, Precision, TierName, VisibilityName
from storage.submissions.metadata import MAX_DEPTH, MAX_METADATA_BYTES, checked_metadata

__all__ = ["DeviceRequirements", "Metadata", "PublishRequest", "SubmissionRequest", "WithdrawalRequest"]

_EXACTLY_ONE: Final[list[JsonValue]] = [
    {"required": [given], "properties": {given: {"type": "string"}, other: {"type": "null"}}}
    for given, other in (("code", "response"), ("response", "code"))
]


Metadata = Annotated[
    dict[str, Any],
    AfterValidator(checked_metadata),
    Field(
        description=f"A JSON object of yours, returned as you gave it. At most {MAX_METADATA_BYTES} bytes as JSON "
        f"without white space, and {MAX_DEPTH} objects or lists inside each other. Shown to whoever sees the source."
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


class SubmissionRequest(BaseModel):
    """A candidate and the conditions of its grading. Exactly one of `code` and `response` is given."""

    # In strict mode, "yes" is not a boolean and 1 is not a text.
    model_config = ConfigDict(extra="forbid", strict=True, json_schema_extra={"oneOf": _EXACTLY_ONE})

    problem: str = Field(description="The problem's id, see `/api/v1/problems`.", max_length=200)
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
        "default. `compile*`: the reference under `torch.compile`. Lower precisions need the problem's permission.",
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
