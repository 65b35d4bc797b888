"""The bodies of requests about problems."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from api.schemas.numbers import WholeNumber
from api.schemas.submissions import RulesRequest, ToleranceRequest
from kerneljudge.records import Precision

__all__ = ["ProblemPublication", "ProblemRequest"]

Globals = Annotated[dict[str, int | Annotated[float, Field(allow_inf_nan=False)]], Field(max_length=64)]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class GradientsTable(_Table):
    """The policy for gradients."""

    policy: Literal["check", "require", "none"] = "check"


class InputsTable(_Table):
    """The domain of inputs."""

    domain: Literal["real", "as_written"]


class ReferenceTable(_Table):
    """Properties of the reference."""

    row_independent: bool = Field(
        default=False, description="Whether rows do not influence each other, so that slices of rows save memory."
    )
    whole_inputs: list[WholeNumber] = Field(
        default=[], max_length=64, description="Arguments of `forward` that each slice of rows needs as a whole."
    )
    pooled: Literal["", "mean", "sum"] = Field(
        default="", description="How the outputs follow from those of slices of rows, where they do."
    )
    tf32: bool = Field(
        default=True, description="Whether convolutions and recurrent layers may round to TF32, as PyTorch lets them."
    )


class BaselinesTable(_Table):
    """Lower precisions of the reference that a submission may name as its baseline."""

    precisions: list[Literal["tf32", "float16", "bfloat16"]] = Field(max_length=16)


class ShapeTable(_Table):
    """A further shape of a size."""

    use: Literal["timed", "checked", "held_out"] = "checked"
    values: Globals = Field(description="The reference's globals that differ from the size's.")


class ProblemRequest(_Table):
    """A problem: the source of its reference, and fields as in `problem.toml`. Those that are left out have defaults.

    A file of KernelBench needs `source` alone.
    """

    source: str = Field(
        description="A file in KernelBench's form: `Model`, `get_inputs`, `get_init_inputs`. The service executes it."
    )
    title: str | None = Field(
        default=None, max_length=200, description="Default: the first sentence about `Model` in its source."
    )
    description: str | None = Field(
        default=None, max_length=4000, description="Default: the first paragraph about `Model` in its source."
    )
    dtype: Precision | None = Field(default=None, description="The precision of its tensors. Default: `float32`.")
    sizes: dict[str, Globals] | None = Field(
        default=None,
        max_length=16,
        description="The reference's globals at each size. Default: `full`, as the source is written.",
    )
    tolerance: dict[Precision, ToleranceRequest] | None = Field(
        default=None, description="By precision. Default: 1e-4 for `float32`, 1e-2 for half types."
    )
    gradients: GradientsTable | None = None
    inputs: InputsTable | None = Field(
        default=None, description="Default: `real` where `get_inputs` only draws random numbers, else `as_written`."
    )
    reference: ReferenceTable | None = None
    tags: list[Annotated[str, Field(max_length=60)]] | None = Field(default=None, max_length=16)
    baselines: BaselinesTable | None = None
    shapes: dict[str, Annotated[dict[str, ShapeTable], Field(max_length=16)]] | None = Field(
        default=None, max_length=16, description="Further shapes by size and name."
    )
    neighbours: dict[str, Any] | None = Field(default=None, description="Shapes that are generated beside a size.")
    held_out_salt: str | None = Field(
        default=None, max_length=200, description="A random text, where a shape that is written out is held out."
    )
    rules: RulesRequest | None = Field(default=None, description="Rules about every candidate's source.")

    def fields(self) -> dict[str, Any]:
        """Return the fields that were given, all but the source, as the tables of a ``problem.toml``."""
        return self.model_dump(exclude_none=True, exclude={"source"})


class ProblemPublication(_Table):
    """The visibility of a problem from now on, and the version that you have read."""

    visibility: Literal["public"]
    version: str = Field(
        max_length=100, description="The current version. Where there is a newer one, nothing is published."
    )
