"""The movement of the reference's gradients with its inputs: no computation in its precision can know them better."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, Final

import torch

from evaluator.dtypes import rows_of
from evaluator.judge.correctness.limits import NATIVE_FACTOR, usual_limits
from evaluator.judge.correctness.reference import NUDGE, GradientSlice, Reference
from evaluator.judge.parts import Part, whole_of
from evaluator.problems.problem import Tolerance

__all__ = ["PARKED_BYTES", "SUMS", "BesideZero", "Rounding", "Sensitivity", "Terms", "accumulate", "take_largest"]

_ROUNDINGS: Final = 4.0
_OF_RTOL: Final = 0.1
"""Inputs are moved by this many times the distance of neighbouring numbers, or by this share of the relative tolerance.
The larger move counts, up to the whole tolerance. Rounding decides whether an element is next to a kink, including the
rounding of intermediate results."""
PARKED_BYTES: Final = 2**30
"""Movements of more than this, of all inputs or of all weights, are kept in the host's memory."""
SUMS: Final = 24
"""The most sums over slices of weights' gradients that are kept at once, one for each move of the inputs."""
_NEAR: Final = 0.125
"""Where more rows than this share are in doubt, a separate look at them saves too little."""


class Sensitivity:
    """The largest movement of the gradients of one call when the inputs move by several roundings.

    It is found on demand, in two dozen evaluations of the reference. Where rows are independent, those in doubt can be
    examined by themselves. Next to a kink, a few rows of an input's gradient are wrong. In a weight's gradient, a sum
    over all rows, it is the terms of the same rows. ``slices``: the numbers of the compared slices; ``slice_of``:
    returns inputs and upstream gradients of one.
    """

    _times: ClassVar[float] = 1.0
    """The factor of all movements."""

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

    def near_weight(self, index: int, part: Part = whole_of) -> torch.Tensor | None:
        """Return the movement of weight ``index`` by the rows in doubt in the inputs' gradients. ``None`` without such
        rows, or with some in several slices: the largest movements of each add up to more than that of their sum."""
        if len(self._near_weights) != 1:
            return None
        (weights,) = self._near_weights.values()
        moved = weights[index]
        return None if moved is None else part(moved)

    def of_input(
        self,
        number: int,
        index: int,
        exact: GradientSlice,
        actual: torch.Tensor,
        own: torch.Tensor,
        part: Part = whole_of,
    ) -> torch.Tensor | None:
        """Return the movement of input ``index`` in slice ``number``, whose gradients at the unmoved inputs are
        ``exact``; zero in rows that are not in doubt. ``actual`` is the candidate's gradient, ``own`` the
        native-precision one."""
        right = exact.inputs[index]
        rows = None if right is None else self._rows_in_doubt(right, actual, own)
        if right is None or rows is None:
            return None if right is None else self._scaled(self._of_slice(number, exact)[index], right, part)
        moved = self._scaled(self._of_rows(number, rows)[index], right, whole_of)
        return None if moved is None else part(torch.zeros_like(right).index_copy_(0, rows, moved))

    def of_weight(self, index: int, exact: Sequence[torch.Tensor | None], part: Part = whole_of) -> torch.Tensor | None:
        """Return the movement of weight ``index``; ``exact`` are the gradients of all weights, which are sums over all
        slices."""
        if self._weights is None:
            self._weights = _parked(self._of_weights(exact))
        right = exact[index]
        return None if right is None else self._scaled(self._weights[index], right, part)

    def _of_weights(self, exact: Sequence[torch.Tensor | None]) -> list[torch.Tensor | None]:
        largest: list[torch.Tensor | None] = [None] * len(exact)
        if len(self._slices) == 1:
            for perturbed in self._perturbed(*self._slice_of(self._slices[0])):
                take_largest(largest, perturbed.weights, exact)
                del perturbed
            return largest
        sums: list[list[torch.Tensor | None]] = []
        for number in self._slices:
            position = 0
            for perturbed in self._perturbed(*self._slice_of(number)):
                if len(sums) == position:
                    sums.append([None] * len(exact))
                accumulate(sums[position], _parked(perturbed.weights, copies=SUMS))
                position += 1  # noqa: SIM113 - enumerate would hold this one while the next is computed
                del perturbed
        for total in sums:
            take_largest(largest, total, exact)
        return largest

    def _scaled(self, moved: torch.Tensor | None, right: torch.Tensor, part: Part) -> torch.Tensor | None:
        """Return a part of the movement where it can be compared, on the device of ``right``."""
        if moved is None:
            return None
        some = part(moved).to(right.device)
        return some if self._times == 1.0 else some * self._times

    def _rows_in_doubt(self, right: torch.Tensor, actual: torch.Tensor, own: torch.Tensor) -> torch.Tensor | None:
        """Return the rows in which the candidate's gradient, or the native-precision one, needs more than the usual
        limit; ``None`` where a separate look at them is of no use."""
        if not self._rows_alone or not right.dim():
            return None
        limit = usual_limits(right, self._tolerance, actual.dtype).limit
        fine = torch.sub(actual, right).abs_() <= limit
        fine &= torch.sub(own, right).abs_().mul_(NATIVE_FACTOR) <= limit
        rows = fine.view(len(fine), -1).all(1).logical_not_().nonzero().view(-1)
        return rows if 0 < len(rows) <= _NEAR * len(fine) else None

    def _of_slice(self, number: int, exact: GradientSlice) -> list[torch.Tensor | None]:
        """Return the movements of all inputs, in all rows of a slice."""
        if self._inputs is None or self._inputs[0] != number:
            values, upstream = self._slice_of(number)
            inputs, weights = self._largest(values, upstream, exact, weights_too=len(self._slices) == 1)
            self._inputs = number, _parked(inputs)
            if len(self._slices) == 1:
                self._weights = _parked(weights)
        return self._inputs[1]

    def _of_rows(self, number: int, rows: torch.Tensor) -> list[torch.Tensor | None]:
        """Return the movements of the inputs, in these rows of a slice; the movements of the weights by them are
        kept."""
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
            del perturbed  # the next one is computed before the loop would let go of it
        return inputs, weights

    def _perturbed(self, values: Sequence[Any], upstream: Sequence[torch.Tensor]) -> Iterator[GradientSlice]:
        return self._reference.perturbed_gradients(values, upstream, self._relative, self._new_generator())

    @property
    def _relative(self) -> float:
        rtol = self._tolerance.rtol
        return min(rtol, max(_ROUNDINGS * self._reference.epsilon, _OF_RTOL * rtol))


class Terms(Sensitivity):
    """The magnitude of the terms that the elements of gradients are sums of. It is their proportional movement, in
    three evaluations at slightly moved inputs, weights and upstream gradients."""

    _times = 1.0 / NUDGE

    def _perturbed(self, values: Sequence[Any], upstream: Sequence[torch.Tensor]) -> Iterator[GradientSlice]:
        return self._reference.nudged_gradients(values, upstream, self._new_generator())


class BesideZero(Sensitivity):
    """Twice the largest movement of the gradients of one call when exact zeros of the inputs become numbers next to
    zero. Of the many kinks from a row of zeros, about half are on the other side then."""

    _times = 2.0

    def _perturbed(self, values: Sequence[Any], upstream: Sequence[torch.Tensor]) -> Iterator[GradientSlice]:
        return self._reference.gradients_beside_zero(values, upstream, self._new_generator())


class Rounding(Sensitivity):
    """Four times the largest movement of the gradients of one call when each intermediate result moves by as much as
    inputs do.

    Where terms cancel for all inputs, no move of these shows how large they are: at the one large element of a softmax,
    and in the bias before a normalisation. A computation that adds a thousand numbers one after the other loses the
    small ones there.
    """

    _times = NATIVE_FACTOR

    def _perturbed(self, values: Sequence[Any], upstream: Sequence[torch.Tensor]) -> Iterator[GradientSlice]:
        return self._reference.rounded_gradients(values, upstream, self._relative, self._new_generator())


def take_largest(
    largest: list[torch.Tensor | None], moved: Sequence[torch.Tensor | None], exact: Sequence[torch.Tensor | None]
) -> None:
    """Keep in ``largest``, element by element, the largest distance of ``moved`` from ``exact``."""
    for index, (now, was) in enumerate(zip(moved, exact, strict=True)):
        if now is not None and was is not None:
            move = torch.sub(now.to(was.device), was).abs_()
            known = largest[index]
            largest[index] = move if known is None else torch.maximum(known, move, out=known)


def _parked(tensors: Sequence[torch.Tensor | None], *, copies: int = 1) -> list[torch.Tensor | None]:
    """Return tensors that are needed later, with others like them: ``copies`` in all. They are in the host's memory,
    where they are so large that a device would have no room for them beside the next ones."""
    large = copies * sum(tensor.nbytes for tensor in tensors if tensor is not None) > PARKED_BYTES
    return [tensor.cpu() if large and tensor is not None else tensor for tensor in tensors]


def accumulate(sums: list[torch.Tensor | None], terms: Sequence[torch.Tensor | None]) -> None:
    """Add ``terms`` to ``sums``, never in place: a term may be in several sums, and twice among the terms, as the
    gradient of two parameters that are only used as their sum."""
    for index, term in enumerate(terms):
        if term is not None:
            known = sums[index]
            sums[index] = term if known is None else known + term
