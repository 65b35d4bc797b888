"""The tallies of one call: one for each output and gradient, with the names that messages use."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from evaluator.dtypes import coarsest
from evaluator.judge.correctness.compare import Tally
from evaluator.judge.correctness.reference import Reference
from evaluator.judge.correctness.tolerances import Tolerances, tolerance_of
from evaluator.judge.signature import Signature
from evaluator.problems.problem import Tolerance
from evaluator.protocol.shared_memory import TensorSpec

__all__ = [
    "CallTallies",
    "gradient_name",
    "input_gradient_name",
    "output_name",
    "output_tallies",
    "tolerances_by_tensor",
]


@dataclass
class CallTallies:
    """The tallies of a forward and backward call. ``expected``: the names of gradients that are there in the reference,
    and not zero. ``influence``: by float input, the share of its elements that the outputs depend on."""

    outputs: list[Tally]
    inputs: list[Tally]
    weights: list[Tally]
    expected: set[str] = field(default_factory=set)
    influence: dict[int, float] = field(default_factory=dict)

    @classmethod
    def of(cls, signature: Signature, rows: torch.Tensor | None) -> CallTallies:
        """Return empty ones. ``rows``: those that the call is compared in, int64 [count]; ``None`` for all."""
        inputs = [_tally(input_gradient_name(place), spec, rows) for place, spec in enumerate(signature.float_inputs)]
        weights = [_tally(gradient_name(name), spec, None) for name, spec in signature.weights]
        return cls(output_tallies(signature.outputs, rows), inputs, weights)

    def expect(self, index: int, gradient: torch.Tensor, *, whole: bool) -> None:
        """Take in a slice of the reference's gradient of input ``index``. ``whole``: the call is compared in all
        rows."""
        tally = self.inputs[index]
        # On a CPU, count_nonzero takes three times as long.
        share = int((gradient != 0).sum()) / max(1, gradient.numel())
        if whole:
            part = gradient.numel() / max(1, math.prod(tally.shape))
            self.influence[index] = self.influence.get(index, 0.0) + share * part
        if share:
            self.expected.add(tally.name)


def tolerances_by_tensor(reference: Reference, tolerances: Tolerances) -> dict[str, Tolerance]:
    """Return the tolerance of each output and gradient, by the name of its tally. ``tolerances`` are those of the
    problem's precision. A tensor of fewer bits has that of its own, and so has a float64 one, where no input has fewer.
    Gradients have gone through the outputs, and are no more exact than the coarsest of them."""
    signature = reference.signature
    given = [*signature.float_inputs, *(spec for _, spec in signature.weights)]
    before = coarsest([spec.torch_dtype for spec in given if spec.is_differentiable])
    after = [spec.torch_dtype for spec in signature.outputs if spec.is_differentiable]
    named = [
        (output_name(index, signature.outputs), [spec.torch_dtype], usual)
        for index, (spec, usual) in enumerate(zip(signature.outputs, tolerances.outputs, strict=True))
    ]
    flowing = [(input_gradient_name(index), spec) for index, spec in enumerate(signature.float_inputs)]
    flowing += [(gradient_name(name), spec) for name, spec in signature.weights]
    named += [(name, [spec.torch_dtype, *after], tolerances.gradients) for name, spec in flowing]
    return {name: tolerance_of(coarsest(types), before, reference.precision, usual) for name, types, usual in named}


def output_tallies(specs: Sequence[TensorSpec], rows: torch.Tensor | None = None) -> list[Tally]:
    """Return an empty tally for each output."""
    return [_tally(output_name(index, specs), spec, rows) for index, spec in enumerate(specs)]


def output_name(index: int, specs: Sequence[TensorSpec]) -> str:
    """Return the name of an output, one of ``specs``."""
    return "the output" if len(specs) == 1 else f"output {index}"


def gradient_name(weight: str) -> str:
    """Return the name of the gradient of a weight."""
    return f"the gradient of {weight}"


def input_gradient_name(index: int) -> str:
    """Return the name of the gradient of a float input."""
    return f"the gradient of input {index}"


def _tally(name: str, spec: TensorSpec, rows: torch.Tensor | None) -> Tally:
    """Return an empty tally of a tensor as in ``as_reals``, or of some rows of it."""
    shape = (*spec.shape, 2) if spec.torch_dtype.is_complex else spec.shape
    if rows is None:
        return Tally(name, shape)
    return Tally(name, (len(rows), *shape[1:]), rows.tolist())
