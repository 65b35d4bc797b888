"""Parameters and buffers that are the same however a model is constructed, and other values for them.

What is drawn while constructing is other in each evaluation. A norm's ones and zeros are not, nor are biases that begin
as zero or running statistics: with these alone, a candidate that leaves them out is right, and is wrong in any trained
model. So they are given secret values once all models are constructed, and keep them in every call, timed ones too. So
is what is drawn in such a way that a relation holds each time (see ``evaluator.judge.inputs.relations``).
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
    "constants_of",
    "drawn",
    "drawn_alike",
    "look_alike",
    "mixed",
    "stepped",
    "varied",
]

Values = Mapping[str, torch.Tensor]
"""Values of parameters and buffers, by name."""

_STATISTICS: Final = ("running_mean", "running_var")
"""Buffers that training changes. Others that are the same each time (masks, tables of positions) are what the model is,
and may be written down in another way."""
_CONSTANT_SHARE: Final = 0.25
"""So many of a parameter's elements are the same each time where it counts as constant."""
_MOVES: Final = (0.1, 0.5)
"""By so much, at the least and the most, an element is moved, as a share of its own magnitude."""
_STEPS: Final = (0.025, 0.125)
"""By so much, likewise, between two calls: as in a training, nothing changes its sign."""
_SMALL: Final = 0.1
"""What is less counts as zero: a factor of 1e-6 that begins a branch grows to anything in training."""
_FLIPPED: Final = 1 / 16
"""Of so many elements the sign changes, and as many are twice as large: a scale may become negative in training."""


_TO_BOTH_SIDES: Final[tuple[tuple[float, Literal[0]], ...]] = ((1.0, 0), (0.5, 0), (0.25, 0))
_TO_ONE_SIDE: Final[tuple[tuple[float, Literal[-1, 1]], ...]] = ((1.0, -1), (1.0, 1), (0.25, -1), (0.25, 1))
"""How far parameters are moved, as a share of ``_MOVES``, and to which side: as far as the reference stays finite. It
may be so on one side of the first value alone."""
_MOST_TRIED: Final = 64
"""So many sets of values the reference is asked about."""


@dataclass(frozen=True)
class Variation:
    """What is the same under every seed, or has relations that are: as it is constructed, other values for it
    (``each``), and ``alike``, where the same values stay the same: for a model in which it cannot be told which of them
    is which."""

    initial: Values = field(default_factory=dict)
    each: Values = field(default_factory=dict)
    alike: Values = field(default_factory=dict)

    def unmoved(self, values: Values) -> list[str]:
        """What has its first value in ``values``."""
        return [name for name, value in values.items() if torch.equal(value, self.initial[name])]


def varied(initial: Values, generator: torch.Generator, is_finite: Callable[[Values], bool]) -> Variation:
    """Other values for all of ``initial``, such that ``is_finite`` says so of them. Where all cannot be moved together,
    one half is after the other, and in the end each by itself. What cannot be moved at all keeps its first value."""
    each, restraint = dict(initial), dict.fromkeys(initial, len(_TO_BOTH_SIDES) + len(_TO_ONE_SIDE))
    groups, tried = [[*initial]], 0
    while groups and tried < _MOST_TRIED:
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
    return Variation(initial, each, drawn_alike(initial, each, restraint))


def constants_of(one: torch.nn.Module, other: torch.nn.Module) -> tuple[str, ...]:
    """Names of what is the same in two models of one class that were constructed under different seeds, and that
    training would change. Both are where they were constructed, in the precision that they were constructed in."""
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
    """Other values for each of ``values``: every element is multiplied by 0.5 to 0.9 or 1.1 to 1.5, and to one that is
    below 0.1 as much is added, of either sign, divided by the root of how many are summed where there are several
    dimensions. A few elements have the other sign then, or are twice as large. ``share``: of these moves; none changes
    its sign where it is less than 1. ``side``: all of them are less (-1) or more (1) than one. On the device of
    ``generator``, in the dtypes of ``values``.
    """
    return {name: _moved(name, value, generator, share, side) for name, value in values.items()}


def stepped(values: Values, generator: torch.Generator) -> dict[str, torch.Tensor]:
    """Values as after a step of training: each element is larger or smaller by 2.5 to 12.5 %, and zeros stay. On the
    device of ``generator``, in the dtypes of ``values``."""
    return {name: _stepped(value, generator) for name, value in values.items()}


def drawn_alike(values: Values, drawn_values: Values, restraint: Mapping[str, int]) -> dict[str, torch.Tensor]:
    """``drawn_values`` with the same for all whose ``values`` are the same: those of the one that had the most
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


def look_alike(values: Values, names: Collection[str]) -> frozenset[str]:
    """Those of ``names`` whose values another of ``values`` has as well, in whatever shape."""
    return frozenset(
        name
        for name in names
        for other, value in values.items()
        if other != name
        and value.numel() == values[name].numel()
        and torch.equal(value.reshape(-1), values[name].reshape(-1))
    )


def mixed(changed: Values, kept: Values, names: Collection[str]) -> dict[str, torch.Tensor]:
    """``changed``, but ``kept`` for ``names``."""
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
            flipped |= chance == chance.amin()  # one at the least
        moved = torch.where(flipped, -moved, moved)
        moved = torch.where(chance > 1.0 - _FLIPPED, 2.0 * moved, moved)
    # A variance stays one.
    return (moved.abs() if name.endswith(_STATISTICS[1]) else moved).to(value.dtype)
