"""The native-precision reference: its results in the problem's own precision, computed on demand.

It shows how exact the reference itself is, which widens limits, and is reported beside a candidate's errors. It may be
the standard of timed calls as well (see ``evaluator.judge.correctness.native_standard``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

import torch

from evaluator.judge.correctness.reference import GradientSlice, Reference
from evaluator.judge.correctness.sensitivity import accumulate

__all__ = ["NativeGradients", "Own", "further_off", "input_gradient_of"]

Own = Callable[[], torch.Tensor]
"""A function that computes one tensor on demand."""


class NativeGradients:
    """The native-precision gradients of one call. ``slices``: the numbers of the compared slices. ``slice_of``: returns
    inputs and upstream gradients of one, anew each time, since a reference may write to its arguments."""

    def __init__(
        self,
        reference: Reference,
        slices: Sequence[int],
        slice_of: Callable[[int], tuple[list[Any], list[torch.Tensor]]],
    ) -> None:
        self._reference = reference
        self._slices = slices
        self._slice_of = slice_of
        self._weights: list[torch.Tensor | None] = [None] * reference.signature.summed_gradients
        self._summed: set[int] = set()

    def of_slice(
        self, number: int, values: Sequence[Any], upstream: Sequence[torch.Tensor]
    ) -> Callable[[], GradientSlice]:
        """Return a function for the outputs and gradients of slice ``number`` at these ``values``; they are computed
        once."""
        return cache(partial(self._compute, number, values, upstream))

    def of_weight(self, index: int, exact: torch.Tensor) -> torch.Tensor:
        """Return the gradient of weight ``index``, over all slices; ``exact``, where the reference has none."""
        for number in self._slices:
            if number not in self._summed:
                self._compute(number, *self._slice_of(number))
        own = self._weights[index]
        return exact if own is None else own

    def _compute(self, number: int, values: Sequence[Any], upstream: Sequence[torch.Tensor]) -> GradientSlice:
        found = self._reference.native_gradients(values, upstream)
        if number not in self._summed:
            accumulate(self._weights, found.weights)
            self._summed.add(number)
        return found


def input_gradient_of(own: Callable[[], GradientSlice], index: int, exact: torch.Tensor) -> torch.Tensor:
    """Return the native-precision gradient of input ``index``; ``exact``, where it has none."""
    found = own().inputs[index]
    return exact if found is None else found


def further_off(one: torch.Tensor, other: torch.Tensor, exact: torch.Tensor, actual: torch.Tensor) -> torch.Tensor:
    """Return the one of two native-precision results that is further from ``exact`` (float64), element by element; all
    have one shape.

    Where the second is not finite and the candidate's, ``actual``, is of the same class, it is the second. A candidate
    may lose a number that the reference has lost by the same order of summation. Where any is not finite otherwise, it
    is the first.
    """
    further = torch.sub(other, exact).abs_() > torch.sub(one, exact).abs_()
    finite = other.isfinite()
    same_class = (actual == other) | (actual.isnan() & other.isnan())
    return torch.where((further & finite) | (~finite & same_class), other, one)
