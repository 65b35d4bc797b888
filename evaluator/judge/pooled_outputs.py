"""Outputs that are the mean or the sum of those of slices of rows, such as a loss over a batch.

Each slice is computed by itself, so that its memory is free for the next one. The outputs themselves are small.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch

from evaluator.judge.correctness.reference import Reference

__all__ = ["PooledOutputs"]


class PooledOutputs:
    """The outputs of the reference over all slices of one call, with the methods of ``Reference`` for outputs. Their
    ``inputs`` are not looked at. ``shares``: the weight of each slice. ``inputs_of``: returns the inputs of one, anew
    each time, since a reference may write to its arguments."""

    def __init__(self, reference: Reference, shares: Sequence[float], inputs_of: Callable[[int], list[Any]]) -> None:
        self._reference = reference
        self._shares = shares
        self._inputs_of = inputs_of

    @property
    def epsilon(self) -> float:
        """As of ``Reference``."""
        return self._reference.epsilon

    def native_outputs(self, _inputs: Sequence[Any]) -> list[torch.Tensor]:
        """Return the outputs in the problem's precision. Slices are put together in float64: their number, which the
        judge decides, adds nothing to the reference's own error."""
        dtypes: list[torch.dtype] = []

        def run(inputs: list[Any]) -> Iterator[list[torch.Tensor]]:
            found = self._reference.native_outputs(inputs)
            dtypes[:] = [output.dtype for output in found]
            yield [output.double() for output in found]

        (total,) = self._over_slices(run)
        return [output.to(dtype) for output, dtype in zip(total, dtypes, strict=True)]

    def exact_outputs(self, _inputs: Sequence[Any]) -> list[torch.Tensor]:
        """Return the float64 outputs."""
        (total,) = self._over_slices(lambda inputs: iter([self._reference.exact_outputs(inputs)]))
        return total

    def saturated_outputs(self, _inputs: Sequence[Any]) -> list[torch.Tensor] | None:
        """Return the float64 outputs with intermediate numbers held where they overflow; ``None`` where that is
        impossible."""

        def run(inputs: list[Any]) -> Iterator[list[torch.Tensor]]:
            found = self._reference.saturated_outputs(inputs)
            return iter([] if found is None else [found])

        found = self._over_slices(run)
        return found[0] if found else None

    def perturbed_outputs(
        self, _inputs: Sequence[Any], relative: float, generator: torch.Generator
    ) -> Iterable[list[torch.Tensor]]:
        """Return float64 outputs at inputs moved by ± ``relative`` times their magnitude."""
        return self._over_slices(lambda inputs: self._reference.perturbed_outputs(inputs, relative, generator))

    def nudged_outputs(self, _inputs: Sequence[Any], generator: torch.Generator) -> Iterable[list[torch.Tensor]]:
        """Return float64 outputs at inputs and weights that are moved by about ``NUDGE`` of each."""
        return self._over_slices(lambda inputs: self._reference.nudged_outputs(inputs, generator))

    def _over_slices(self, run: Callable[[list[Any]], Iterator[list[torch.Tensor]]]) -> list[list[torch.Tensor]]:
        """Return the pooled results of each of several runs: ``run`` yields the same number of them for each slice.
        None where one slice has none."""
        totals: list[list[torch.Tensor]] = []
        for number, share in enumerate(self._shares):
            count = 0
            for found in run(self._inputs_of(number)):
                parts = [output * share for output in found]
                if number:
                    parts = [total.add_(part) for total, part in zip(totals[count], parts, strict=True)]
                totals[count : count + 1] = [parts]
                count += 1
            if not count:
                return []
        return totals
