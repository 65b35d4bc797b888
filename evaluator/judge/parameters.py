"""Parameters and buffers that are the same however a model is constructed, and other values for them.

What is drawn while constructing is other in each evaluation. A norm's ones and zeros are not, nor are biases that begin
as zero or running statistics: with these alone, a candidate that leaves them out is right, and is wrong in any trained
model. So they are given secret values once all models are constructed, and keep them in every call, timed ones too.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

import torch

__all__ = ["Values", "Variation", "constants_of", "drawn", "drawn_alike", "mixed"]

Values = Mapping[str, torch.Tensor]
"""Values of parameters and buffers, by name."""

_STATISTICS: Final = ("running_mean", "running_var")
"""Buffers that training changes. Others that are the same each time (masks, tables of positions) are what the model is,
and may be written down in another way."""
_CONSTANT_SHARE: Final = 0.25
"""So many of a parameter's elements are the same each time where it counts as constant."""
_MOVES: Final = (0.1, 0.5)
"""By so much, at the least and the most, an element is moved, as a share of its own magnitude."""


@dataclass(frozen=True)
class Variation:
    """What is the same under every seed: as it is constructed, other values for it (``each``), and ``alike``, where the
    same values stay the same (see ``drawn_alike``)."""

    initial: Values = field(default_factory=dict)
    each: Values = field(default_factory=dict)
    alike: Values = field(default_factory=dict)


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


def drawn(values: Values, generator: torch.Generator, share: float = 1.0) -> dict[str, torch.Tensor]:
    """Other values for each of ``values``: every element is multiplied by 0.5 to 0.9 or 1.1 to 1.5, and one that is
    zero gets a value of as much, of either sign, divided by the root of how many are summed where there are several
    dimensions. ``share``: of these moves. On the device of ``generator``, in the dtypes of ``values``.
    """
    return {name: _moved(name, value, generator, share) for name, value in values.items()}


def drawn_alike(values: Values, drawn_values: Values) -> dict[str, torch.Tensor]:
    """``drawn_values`` with the same for all whose ``values`` are the same: for a model in which it cannot be told
    which of them is which."""
    alike: dict[str, torch.Tensor] = {}
    for name, value in values.items():
        same = (
            other
            for other in alike
            if value.numel() == values[other].numel() and torch.equal(value.reshape(-1), values[other].reshape(-1))
        )
        first = next(same, name)
        alike[name] = drawn_values[first].reshape(value.shape)
    return alike


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


def _moved(name: str, value: torch.Tensor, generator: torch.Generator, share: float) -> torch.Tensor:
    exact = value.double()
    least, most = _MOVES
    size = torch.rand(value.shape, generator=generator, device=value.device, dtype=torch.float64)
    size = size.mul_(most - least).add_(least)
    sign = torch.randint(0, 2, value.shape, generator=generator, device=value.device).mul_(2).sub_(1)
    summed = value[0].numel() if value.dim() > 1 else 1
    unit = torch.where(exact == 0, 1 / math.sqrt(summed), exact)
    moved = exact + share * sign * size * unit
    # A variance stays one.
    return (moved.abs() if name.endswith(_STATISTICS[1]) else moved).to(value.dtype)
