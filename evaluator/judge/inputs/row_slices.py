"""Whether the reference can be computed in slices of rows, as its problem says."""

from __future__ import annotations

import secrets
from collections.abc import Hashable
from typing import Final

import torch

from evaluator.errors import ProblemError
from evaluator.judge.correctness.reference import Reference
from evaluator.judge.inputs.drawing import InputSource, Variant
from evaluator.protocol.shared_memory import TensorSpec

__all__ = ["require_slices"]

_ROWS: Final = 16
"""So many rows are computed at once, and in two halves."""
_ROUNDING: Final = 1e-7
"""The distance of two float64 tensors, as a share of their norm, that is more than rounding."""
_RIGHT: Final[set[Hashable]] = set()
"""Problems, by version, size and precision, for which it was found to be so."""


def require_slices(reference: Reference, source: InputSource) -> None:
    """Raise ``ProblemError`` where the outputs of a few rows are not those of their halves, put together.

    Otherwise limits would be widened by the difference, and wrong results would be right.
    """
    known = (*reference.problem_key, reference.precision)
    signature, rows = reference.signature, reference.signature.sliced_rows
    if known in _RIGHT or rows is None or rows < 2:
        return
    count = min(_ROWS, rows) // 2 * 2
    drawn = source.make(signature.input_tensors, Variant.AS_WRITTEN, secrets.randbits(63), avoid_zero=True)
    cuts = [(0, count // 2), (count // 2, count)]
    whole, *halves = (_outputs(reference, drawn, cut) for cut in ((0, count), *cuts))
    for index, output in enumerate(whole):
        parts = [half[index] for half in halves]
        together = torch.cat(parts) if not signature.pooled else parts[0] + parts[1]
        if signature.pooled == "mean":
            together = together / 2
        if _differ(output, together):
            raise ProblemError(
                f"output {index} of the reference is not that of its slices of rows, put together: "
                "reference.row_independent, whole_inputs or pooled in problem.toml says so, and is wrong"
            )
    _RIGHT.add(known)


def _outputs(reference: Reference, drawn: list[torch.Tensor], cut: tuple[int, int]) -> list[torch.Tensor]:
    tensors = iter(reference.signature.rows_of_inputs(drawn, cut))
    return reference.exact_outputs(
        [
            value.arrange(next(tensors).clone()) if isinstance(value, TensorSpec) else value["value"]
            for value in reference.signature.inputs
        ]
    )


def _differ(one: torch.Tensor, other: torch.Tensor) -> bool:
    if one.shape != other.shape:
        return True
    if not one.is_floating_point():
        return not torch.equal(one, other)
    usable = torch.isfinite(one)
    if not torch.equal(usable, torch.isfinite(other)):
        return True
    apart = torch.linalg.vector_norm(torch.where(usable, one - other, 0.0))
    return bool(apart > _ROUNDING * torch.linalg.vector_norm(torch.where(usable, one, 0.0)))
