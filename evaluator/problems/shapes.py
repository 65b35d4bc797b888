"""Shapes: further values of a size's globals, at which a candidate must be right as well. Torch-free.

A kernel that was written for one size may count on its numbers: on a power of two, on an alignment, on a grid without
remainder. A problem names other shapes beside its sizes. Each belongs to one size, has one use, and is judged once a
candidate has passed at the size itself (see ``evaluator.stages.shapes``).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

__all__ = [
    "ANOTHER_VALUE",
    "MEAN",
    "MOST_VARIED",
    "NEIGHBOURS",
    "SHAPE_USES",
    "Shape",
    "Varied",
    "full_name",
    "neighbours",
    "split_name",
]

SHAPE_USES: Final = ("timed", "checked", "held_out")
"""``timed``: verified, with figures of its own. ``checked``: verified. ``held_out``: verified, and never shown."""

NEIGHBOURS: Final = ("one_more", "one_less", "prime", "least")
"""The shapes that are generated around a size, by name."""

ANOTHER_VALUE: Final = "another value of a global"
"""The trouble with a global that is no extent."""

MOST_VARIED: Final = 2**31
"""The largest value of a global that neighbours vary."""

_SEPARATOR: Final = "/"
_VECTOR: Final = 4
"""Kernels load four float32 numbers at once: an extent of another kind has a tail."""
_PRIME_SHARE: Final = (3, 4)
"""The share of a size's extent, as a fraction, that ``prime`` stays below."""
_WITNESSES: Final = (2, 3, 5, 7)
"""The bases of the Miller-Rabin test, which decide every number below 3,215,031,751."""


@dataclass(frozen=True)
class Shape:
    """One shape: ``values`` of globals that differ from those of its size, and its use."""

    use: str
    values: Mapping[str, int | float]

    def trouble(self, of_size: Mapping[str, int | float]) -> tuple[str, ...]:
        """Return in words how the globals differ from those of the size, without a number."""
        found: dict[str, None] = {}
        for name, value in self.values.items():
            before = of_size.get(name)
            if not isinstance(value, int) or not isinstance(before, int) or value < 1 or before < 1:
                found[ANOTHER_VALUE] = None  # a switch or a factor, and no extent
                continue
            if value == 1:
                found["an extent of one"] = None
                continue
            if value % _VECTOR and not before % _VECTOR:
                found["a ragged tail"] = None
            if value != before:
                found["a larger extent" if value > before else "a smaller extent"] = None
        return tuple(found)


@dataclass(frozen=True)
class Varied:
    """A global that may take any multiple of ``multiple_of`` from ``least`` on."""

    least: int = 1
    multiple_of: int = 1

    def __post_init__(self) -> None:
        if self.multiple_of < 1 or self.least < 1 or self.least % self.multiple_of:
            raise ValueError("least and multiple_of must be at least 1, and least a multiple of multiple_of")


MEAN: Final = "*"
"""Stands for a size and all its timed shapes together, where the name of a shape may stand."""


def full_name(size: str, shape: str) -> str:
    """Return the name that stands for a shape in place of a size."""
    return f"{size}{_SEPARATOR}{shape}"


def split_name(name: str) -> tuple[str, str | None]:
    """Return the size, and the shape where ``name`` is that of a shape."""
    size, _, shape = name.partition(_SEPARATOR)
    return size, shape or None


def neighbours(
    values: Mapping[str, int], varied: Mapping[str, Varied], use: str, kinds: Collection[str] = NEIGHBOURS
) -> dict[str, Shape]:
    """Generate the shapes around a size by the names of ``kinds``: all varied globals change together.

    ``values``: the varied globals at the size, none below its least or above ``MOST_VARIED``. Left out are a shape that
    would change nothing, and one that another has generated already.
    """
    found: dict[str, Shape] = {}
    for kind in (each for each in NEIGHBOURS if each in kinds):
        shape = Shape(use, {name: _value(kind, values[name], each) for name, each in varied.items()})
        if shape.values != values and shape not in found.values():
            found[kind] = shape
    return found


def _value(kind: str, value: int, varied: Varied) -> int:
    step = varied.multiple_of
    if kind == "one_more":
        return (value // step + 1) * step
    if kind == "one_less":
        return max(varied.least, (value - 1) // step * step)
    return varied.least if kind == "least" else _prime_multiple(value, varied)


def _prime_multiple(value: int, varied: Varied) -> int:
    """Return the largest prime times ``multiple_of`` up to three quarters of ``value``, or else the least."""
    part, whole = _PRIME_SHARE
    for factor in range(value * part // whole // varied.multiple_of, 1, -1):
        if factor * varied.multiple_of < varied.least:
            break
        if _is_prime(factor):
            return factor * varied.multiple_of
    return varied.least


def _is_prime(number: int) -> bool:
    """Whether ``number``, from 2 up to ``MOST_VARIED``, is prime, by the test of Miller and Rabin."""
    if number in _WITNESSES:
        return True
    twos = ((number - 1) & (1 - number)).bit_length() - 1
    odd = (number - 1) >> twos
    for witness in _WITNESSES:
        power = pow(witness, odd, number)
        if power in (1, number - 1):
            continue
        if all((power := pow(power, 2, number)) != number - 1 for _ in range(twos - 1)):
            return False
    return True
