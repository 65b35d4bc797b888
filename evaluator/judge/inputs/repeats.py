"""Inputs that are the same in every draw of ``get_inputs``, or that are always in the same relation.

A candidate may leave out a mask of ones, or a division of rows by their length where that is always one: it is right on
every input of the problem. Where the judge draws inputs of its own, it changes some elements of a boolean mask. Other
repeats are only reported, since it is unknown which other values would be fair.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import torch

from evaluator.dtypes import as_signed
from evaluator.judge.inputs.relations import related_among

__all__ = ["FEW", "MANY", "PROOF_BYTES", "PROOF_DRAWS", "Repeats", "are_equal", "flip_some", "repeats_of"]

MANY: Final = 0.25
FEW: Final = 2.0**-10
"""The shares of a mask's elements that are flipped, at least one. With ``FEW``, a check of some places cannot tell the
mask from that of ``get_inputs``. A kernel that skips parts by their mask still does."""

PROOF_DRAWS: Final = 16
"""The number of draws of small inputs that tells chance (a few whole numbers that agree) from constant values."""
PROOF_BYTES: Final = 2**24
_MAX_MENDED: Final = 8


@dataclass(frozen=True)
class Repeats:
    """Places among the tensor inputs of those that are the ``same`` in every draw, and of those that are ``related``:
    to themselves or each other, in the same way each time."""

    same: tuple[int, ...] = ()
    related: tuple[int, ...] = ()


def repeats_of(draw: Callable[[], list[torch.Tensor]], examined: Sequence[int]) -> Repeats:
    """Return the repeats among the tensors at the places ``examined`` of the results of ``draw``, each under a new
    seed. Real numbers among these are examined for relations."""
    if not examined:
        return Repeats()

    def drawn() -> dict[int, torch.Tensor]:
        tensors = draw()
        return {place: tensors[place] for place in examined}

    def numbers(tensors: dict[int, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {
            str(place): tensor.detach().float() if tensor.itemsize < torch.float32.itemsize else tensor.detach()
            for place, tensor in tensors.items()
            if tensor.is_floating_point() and tensor.numel() and place not in same
        }

    first, other = drawn(), drawn()
    same = [place for place in examined if first[place].numel() and are_equal([first[place]], [other[place]])]
    related = related_among(numbers(first), numbers(other), lambda: numbers(drawn()))
    del other
    if same:
        small = sum(first[place].nbytes for place in same) <= PROOF_BYTES
        for _ in range(PROOF_DRAWS if small else 1):
            other = drawn()
            same = [place for place in same if are_equal([first[place]], [other[place]])]
            if not same:
                break
    return Repeats(tuple(same), tuple(int(place) for place in related))


def are_equal(some: Sequence[torch.Tensor], others: Sequence[torch.Tensor]) -> bool:
    """Whether all tensors are equal, NaN being equal to itself."""
    return len(some) == len(others) and all(
        one.shape == other.shape and bool(((one == other) | ((one != one) & (other != other))).all())
        for one, other in zip(map(as_signed, some), map(as_signed, others), strict=True)
    )


def flip_some(mask: torch.Tensor, seed: int, share: float) -> torch.Tensor:
    """Return a copy of a mask (bool, of any shape) with about this share of its elements flipped, at least one. A part
    along a dimension that is neither all true nor all false stays so, because a softmax over nothing is NaN. ``seed``
    decides the elements."""
    stream = random.Random(f"mask {seed}")  # noqa: S311 - it only spreads a secret seed
    generator = torch.Generator(mask.device).manual_seed(stream.getrandbits(63))
    chosen = torch.zeros_like(mask, memory_format=torch.contiguous_format)
    if mask.numel():
        count = max(1, int(share * mask.numel()))
        places = torch.randint(mask.numel(), (count,), generator=generator, device=mask.device)
        chosen.view(-1)[places] = True
    flipped = mask ^ chosen
    for _ in range(_MAX_MENDED):
        emptied = torch.zeros_like(mask)
        for dimension, extent in enumerate(mask.shape):
            if extent > 1:
                emptied |= _is_uniform(flipped, dimension) & ~_is_uniform(mask, dimension)
        if not bool(emptied.any()):
            return flipped
        flipped = torch.where(emptied, mask, flipped)
    return mask.clone()


def _is_uniform(mask: torch.Tensor, dimension: int) -> torch.Tensor:
    """Whether all elements are equal along a dimension, which stays with an extent of one."""
    return mask.all(dimension, keepdim=True) | ~mask.any(dimension, keepdim=True)
