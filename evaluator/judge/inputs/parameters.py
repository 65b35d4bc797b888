"""Parameters and buffers that are the same in every construction of a model, and other values for them.

Random initial values differ in each evaluation. A norm's ones and zeros do not, nor do biases that begin as zero, or
running statistics. With these alone, a candidate that leaves them out is right, and is wrong in any trained model. So
they are given secret values once all models are constructed, and keep them in every call, including timed ones. The
same is done with random values that keep a relation each time (see ``evaluator.judge.inputs.relations``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

import torch

__all__ = [
    "Values",
    "Variation",
    "ambiguous_weights",
    "constants_of",
    "drawn",
    "drawn_tie_preserving",
    "mixed",
    "stepped",
    "varied",
]

Values = Mapping[str, torch.Tensor]
"""Values of parameters and buffers, by name."""

_STATISTICS: Final = ("running_mean", "running_var")
"""Buffers that training changes. Other constant buffers (masks, tables of positions) define the model, and a candidate
may write them down in another way."""
_CONSTANT_SHARE: Final = 0.25
"""A parameter counts as constant where at least this share of its elements is the same each time."""
_MOVES: Final = (0.1, 0.5)
"""The least and the largest move of an element, as a share of its own magnitude."""
_STEPS: Final = (0.025, 0.125)
"""The same for a move between two calls: as in a training, no element changes its sign."""
_SMALL: Final = 0.1
"""Smaller values count as zero: a factor of 1e-6 that begins a branch grows to any size in training."""
_FLIPPED: Final = 1 / 16
"""The share of the elements whose sign changes, and of those that double: a scale may become negative in training."""


_TO_BOTH_SIDES: Final[tuple[tuple[float, Literal[0]], ...]] = ((1.0, 0), (0.5, 0), (0.25, 0))
_TO_ONE_SIDE: Final[tuple[tuple[float, Literal[-1, 1]], ...]] = ((1.0, -1), (1.0, 1), (0.25, -1), (0.25, 1))
"""The attempts for moving parameters: the share of ``_MOVES``, and the side. The first one that leaves the reference
finite is taken. It may be finite on one side of the first value alone."""
_MAX_TRIED: Final = 64
"""The most sets of values that the reference is tested with."""


@dataclass(frozen=True)
class Variation:
    """Constants of the construction, or values with constant relations: their ``initial`` values and other values for
    ``each``. In ``tie_preserving``, equal values stay equal: for a model whose counterparts of equal values cannot be
    told apart."""

    initial: Values = field(default_factory=dict)
    each: Values = field(default_factory=dict)
    tie_preserving: Values = field(default_factory=dict)

    def unmoved(self, values: Values) -> list[str]:
        """Return the names that have their first value in ``values``."""
        return [name for name, value in values.items() if torch.equal(value, self.initial[name])]


def varied(initial: Values, generator: torch.Generator, is_finite: Callable[[Values], bool]) -> Variation:
    """Return other values for all of ``initial``, such that ``is_finite`` holds for them. Where all cannot be moved
    together, one half is moved after the other, and finally each by itself. A value that cannot be moved at all
    stays."""
    each, restraint = dict(initial), dict.fromkeys(initial, len(_TO_BOTH_SIDES) + len(_TO_ONE_SIDE))
    groups, tried = [[*initial]], 0
    while groups and tried < _MAX_TRIED:
        group = groups.pop()
        for number, (share, side) in enumerate((*_TO_BOTH_SIDES, *(_TO_ONE_SIDE if len(group) == 1 else ()))):
            tried += 1
            moved = each | drawn({name: initial[name] for name in group}, generator, share, side)
            if is_finite(moved):
                each = moved
                restraint.update(dict.fromkeys(group, number))
                break
        else:
            middle = len(group) // 2
            groups += [half for half in (group[:middle], group[middle:]) if middle]
    return Variation(initial, each, drawn_tie_preserving(initial, each, restraint))


def constants_of(one: torch.nn.Module, other: torch.nn.Module) -> tuple[str, ...]:
    """Return the names of values that are the same in two models of one class under different seeds, and that training
    would change. Both are on the device and in the precision of their construction."""
    others = {**dict(other.named_parameters()), **dict(other.named_buffers())}
    found = [
        name
        for name, weight in one.named_parameters()
        if weight.requires_grad and _is_constant(weight, others.get(name), _CONSTANT_SHARE)
    ]
    return (
        *found,
        *(
            name
            for name, buffer in one.named_buffers()
            if name.rpartition(".")[2] in _STATISTICS and _is_constant(buffer, others.get(name), 1.0)
        ),
    )


def drawn(
    values: Values, generator: torch.Generator, share: float = 1.0, side: Literal[-1, 0, 1] = 0
) -> dict[str, torch.Tensor]:
    """Return other values for each of ``values``, on the device of ``generator``, in the dtypes of ``values``.

    Every element is multiplied by 0.5 to 0.9 or 1.1 to 1.5. To elements below 0.1 in magnitude, 0.1 to 0.5 of either
    sign is added instead. With several dimensions, it is divided by the root of the number of summed elements. Of a few
    elements the sign changes afterwards, or they double.

    ``share``: of these moves; below 1, no sign changes. ``side``: all factors are below (-1) or above (1) one.
    """
    return {name: _moved(name, value, generator, share, side) for name, value in values.items()}


def stepped(values: Values, generator: torch.Generator) -> dict[str, torch.Tensor]:
    """Return values as after a step of training: each element is larger or smaller by 2.5 to 12.5 %, and zeros stay.
    They are on the device of ``generator``, in the dtypes of ``values``."""
    return {name: _stepped(value, generator) for name, value in values.items()}


def drawn_tie_preserving(values: Values, drawn_values: Values, restraint: Mapping[str, int]) -> dict[str, torch.Tensor]:
    """Return ``drawn_values``, with equal ones where ``values`` are equal: those of the name with the most
    ``restraint``."""
    alike: dict[str, torch.Tensor] = {}
    for name in sorted(values, key=restraint.__getitem__, reverse=True):
        value = values[name]
        same = (
            other
            for other in alike
            if value.numel() == values[other].numel() and torch.equal(value.reshape(-1), values[other].reshape(-1))
        )
        first = next(same, name)
        alike[name] = drawn_values[first].reshape(value.shape)
    return {name: alike[name] for name in values}


def ambiguous_weights(values: Values, names: Collection[str]) -> frozenset[str]:
    """Return those of ``names`` whose values are also the values of another name, in any shape."""
    return frozenset(
        name
        for name in names
        for other, value in values.items()
        if other != name
        and value.numel() == values[name].numel()
        and torch.equal(value.reshape(-1), values[name].reshape(-1))
    )


def mixed(changed: Values, kept: Values, names: Collection[str]) -> dict[str, torch.Tensor]:
    """Return ``changed``, with the values of ``kept`` for ``names``."""
    return {name: kept[name] if name in names else value for name, value in changed.items()}


def _is_constant(one: torch.Tensor, other: torch.Tensor | None, share: float) -> bool:
    if other is None or one.shape != other.shape or not one.is_floating_point() or not one.numel():
        return False
    one, other = one.detach(), other.detach()
    if not bool(torch.isfinite(one).all()):
        return False
    return int((one == other).sum()) >= share * one.numel()


def _stepped(value: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    least, most = _STEPS
    size = torch.rand(value.shape, generator=generator, device=value.device).mul_(most - least).add_(least)
    sign = torch.randint(0, 2, value.shape, generator=generator, device=value.device).mul_(2).sub_(1)
    return (value * size.mul_(sign).add_(1.0)).to(value.dtype)


def _moved(name: str, value: torch.Tensor, generator: torch.Generator, share: float, side: int) -> torch.Tensor:
    exact = value.double()
    least, most = _MOVES
    size = torch.rand(value.shape, generator=generator, device=value.device, dtype=torch.float64)
    size = size.mul_(most - least).add_(least)
    sign = torch.randint(0, 2, value.shape, generator=generator, device=value.device).mul_(2).sub_(1)
    if side:
        sign.fill_(side)
    summed = value[0].numel() if value.dim() > 1 else 1
    unit = torch.where(exact.abs() < _SMALL, 1 / math.sqrt(summed), exact)
    moved = exact + share * sign * size * unit
    if share == 1.0 and not side:
        chance = torch.rand(value.shape, generator=generator, device=value.device, dtype=torch.float64)
        flipped = chance < _FLIPPED
        if value.numel() > 1:
            flipped |= chance == chance.amin()  # at least one
        moved = torch.where(flipped, -moved, moved)
        moved = torch.where(chance > 1.0 - _FLIPPED, 2.0 * moved, moved)
    # A variance stays positive.
    return (moved.abs() if name.endswith(_STATISTICS[1]) else moved).to(value.dtype)
