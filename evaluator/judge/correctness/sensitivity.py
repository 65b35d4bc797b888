"""How far the reference's gradients move when its inputs do: nobody who computes in its precision knows them better."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, Final

import torch

from evaluator.dtypes import rows_of
from evaluator.judge.correctness.limits import OWN_FACTOR, usual_limits
from evaluator.judge.correctness.reference import NUDGE, GradientSlice, Reference
from evaluator.problems.problem import Tolerance

__all__ = ["BesideZero", "Rounding", "Sensitivity", "Terms", "accumulate", "take_largest"]

_ROUNDINGS: Final = 4.0
_OF_RTOL: Final = 0.1
"""Inputs are moved by so many times the distance of neighbouring numbers or this share of the relative tolerance, by
what is more, and by the whole tolerance at the most: what is next to a kink is so by rounding, also by that of what
lies between."""
_NEAR: Final = 0.125
"""Where more rows than this share are in doubt, looking at them alone saves too little."""


class Sensitivity:
    """How far the gradients of one call move, at most, when the inputs move by several roundings.

    Found when first asked for, in two dozen evaluations of the reference. Where rows stand alone, those in doubt can be
    looked at by themselves: next to a kink it is a few rows of an input's gradient that are wrong, and in a weight's
    gradient, a sum over all rows, the terms of the same rows. ``slices``: the numbers of those that the call is
    compared in; ``slice_of``: inputs and upstream gradients of one.
    """

    _times: ClassVar[float] = 1.0
    """By this, moves count."""

    def __init__(
        self,
        reference: Reference,
        tolerance: Tolerance,
        new_generator: Callable[[], torch.Generator],
        slices: Sequence[int],
        slice_of: Callable[[int], tuple[list[Any], list[torch.Tensor]]],
        *,
        rows_alone: bool,
    ) -> None:
        self._reference = reference
        self._tolerance = tolerance
        self._new_generator = new_generator
        self._slices = slices
        self._slice_of = slice_of
        self._rows_alone = rows_alone
        self._inputs: tuple[int, list[torch.Tensor | None]] | None = None
        self._weights: list[torch.Tensor | None] | None = None
        self._near_weights: dict[int, list[torch.Tensor | None]] = {}

    def near_weight(self, index: int) -> torch.Tensor | None:
        """Of weight ``index``, by the rows that were in doubt in the inputs' gradients; ``None`` where there were none,
        or some in several slices: what is largest in each of them is more than what is largest of their sum."""
        if len(self._near_weights) != 1:
            return None
        (weights,) = self._near_weights.values()
        return weights[index]

    def of_input(
        self, number: int, index: int, exact: GradientSlice, actual: torch.Tensor, own: torch.Tensor
    ) -> torch.Tensor | None:
        """Of input ``index`` in slice ``number``, whose gradients at the inputs themselves are ``exact``; zero in rows
        that are not in doubt. ``actual`` is the candidate's, ``own`` the reference's in the problem's precision."""
        right = exact.inputs[index]
        rows = None if right is None else self._rows_in_doubt(right, actual, own)
        if right is None or rows is None:
            return self._scaled(self._of_slice(number, exact)[index])
        moved = self._scaled(self._of_rows(number, rows)[index])
        return None if moved is None else torch.zeros_like(right).index_copy_(0, rows, moved)

    def of_weight(self, index: int, exact: Sequence[torch.Tensor | None]) -> torch.Tensor | None:
        """Of weight ``index``; ``exact`` are the gradients of all weights, which are sums over all slices."""
        if self._weights is None:
            sums: list[list[torch.Tensor | None]] = []
            for number in self._slices:
                values, upstream = self._slice_of(number)
                for position, perturbed in enumerate(self._perturbed(values, upstream)):
                    if len(sums) == position:
                        sums.append([None] * len(exact))
                    accumulate(sums[position], perturbed.weights)
            self._weights = [None] * len(exact)
            for total in sums:
                take_largest(self._weights, total, exact)
        return self._scaled(self._weights[index])

    def _scaled(self, moved: torch.Tensor | None) -> torch.Tensor | None:
        return moved if moved is None or self._times == 1.0 else moved * self._times

    def _rows_in_doubt(self, right: torch.Tensor, actual: torch.Tensor, own: torch.Tensor) -> torch.Tensor | None:
        """Rows in which the candidate's gradient, or the reference's own, needs more than the usual limit; ``None``
        where looking at them alone is no use."""
        if not self._rows_alone or not right.dim():
            return None
        limit = usual_limits(right, self._tolerance, actual.dtype).limit
        fine = torch.sub(actual, right).abs_() <= limit
        fine &= torch.sub(own, right).abs_().mul_(OWN_FACTOR) <= limit
        rows = fine.view(len(fine), -1).all(1).logical_not_().nonzero().view(-1)
        return rows if 0 < len(rows) <= _NEAR * len(fine) else None

    def _of_slice(self, number: int, exact: GradientSlice) -> list[torch.Tensor | None]:
        """Of all inputs, in all of a slice."""
        if self._inputs is None or self._inputs[0] != number:
            values, upstream = self._slice_of(number)
            inputs, weights = self._largest(values, upstream, exact, weights_too=len(self._slices) == 1)
            self._inputs = number, inputs
            if len(self._slices) == 1:
                self._weights = weights
        return self._inputs[1]

    def _of_rows(self, number: int, rows: torch.Tensor) -> list[torch.Tensor | None]:
        """Of the inputs, in these rows of a slice; what becomes of the weights by them is kept."""
        values, upstream = self._slice_of(number)
        values = [rows_of(value, rows) if isinstance(value, torch.Tensor) else value for value in values]
        upstream = [rows_of(gradient, rows) for gradient in upstream]
        exact = self._reference.exact_gradients(values, upstream)
        inputs, self._near_weights[number] = self._largest(values, upstream, exact, weights_too=True)
        return inputs

    def _largest(
        self, values: Sequence[Any], upstream: Sequence[torch.Tensor], exact: GradientSlice, *, weights_too: bool
    ) -> tuple[list[torch.Tensor | None], list[torch.Tensor | None]]:
        inputs: list[torch.Tensor | None] = [None] * len(exact.inputs)
        weights: list[torch.Tensor | None] = [None] * len(exact.weights)
        for perturbed in self._perturbed(values, upstream):
            take_largest(inputs, perturbed.inputs, exact.inputs)
            if weights_too:
                take_largest(weights, perturbed.weights, exact.weights)
        return inputs, weights

    def _perturbed(self, values: Sequence[Any], upstream: Sequence[torch.Tensor]) -> Iterator[GradientSlice]:
        return self._reference.perturbed_gradients(values, upstream, self._relative, self._new_generator())

    @property
    def _relative(self) -> float:
        rtol = self._tolerance.rtol
        return min(rtol, max(_ROUNDINGS * self._reference.epsilon, _OF_RTOL * rtol))


class Terms(Sensitivity):
    """How large the terms are that the elements of gradients are sums of: by how much these move in proportion, in
    three evaluations at inputs, weights and upstream gradients that are hardly moved."""

    _times = 1.0 / NUDGE

    def _perturbed(self, values: Sequence[Any], upstream: Sequence[torch.Tensor]) -> Iterator[GradientSlice]:
        return self._reference.nudged_gradients(values, upstream, self._new_generator())


class BesideZero(Sensitivity):
    """Twice as far as the gradients of one call move, at most, when exact zeros of the inputs become numbers next to
    zero: of many kinks that a row of zeros leads to, about half are on the other side then."""

    _times = 2.0

    def _perturbed(self, values: Sequence[Any], upstream: Sequence[torch.Tensor]) -> Iterator[GradientSlice]:
        return self._reference.gradients_beside_zero(values, upstream, self._new_generator())


class Rounding(Sensitivity):
    """Four times as far as the gradients of one call move, at most, when each intermediate result moves by as much as
    inputs do.

    Where terms cancel whatever the inputs are, no move of these shows how large they are: at the one large element of
    a softmax, and in the bias before a normalisation. Who adds a thousand numbers one after the other loses the small
    ones there.
    """

    _times = OWN_FACTOR

    def _perturbed(self, values: Sequence[Any], upstream: Sequence[torch.Tensor]) -> Iterator[GradientSlice]:
        return self._reference.rounded_gradients(values, upstream, self._relative, self._new_generator())


def take_largest(
    largest: list[torch.Tensor | None], moved: Sequence[torch.Tensor | None], exact: Sequence[torch.Tensor | None]
) -> None:
    """Keep in ``largest``, element by element, how far ``moved`` is from ``exact`` at the most."""
    for index, (now, was) in enumerate(zip(moved, exact, strict=True)):
        if now is not None and was is not None:
            move = (now - was).abs_()
            known = largest[index]
            largest[index] = move if known is None else torch.maximum(known, move, out=known)


def accumulate(sums: list[torch.Tensor | None], terms: Sequence[torch.Tensor | None]) -> None:
    """Add ``terms`` to ``sums``, in place where there is something already."""
    for index, term in enumerate(terms):
        if term is not None:
            known = sums[index]
            sums[index] = term if known is None else known.add_(term)
