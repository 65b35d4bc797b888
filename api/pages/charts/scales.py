"""Scales of charts: from values to coordinates, and the values that are written beside the axis."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, NamedTuple

__all__ = ["Scale", "Tick", "scale_over", "times_of"]

_MAX_TICKS: Final = 6
_STEPS: Final = (1.0, 2.0, 2.5, 5.0, 10.0)
_DAY_S: Final = 86_400.0
_PREFIXES: Final = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


class Tick(NamedTuple):
    """A line of the grid and the text beside it."""

    at: float
    text: str


@dataclass(frozen=True)
class Scale:
    """A scale from ``low`` … ``high`` to the coordinates ``start`` … ``end``; logarithmic where ``log``."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def at(self, value: float) -> float:
        """Return the coordinate of ``value``, rounded to visible precision.

        Values outside the scale are put on its edge.
        """
        value = min(max(value, self.low), self.high)
        if self.log:
            share = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return round(self.start + share * (self.end - self.start), 1)

    def ticks(self) -> tuple[Tick, ...]:
        """Return a handful of round values."""
        values = _decades(self.low, self.high) if self.log else ()
        values = values if len(values) > 1 else _rounds(self.low, self.high)
        return tuple(Tick(self.at(value), _short(value)) for value in values)


def scale_over(
    values: Iterable[float], start: float, end: float, *, log: bool = False, zero: bool = False, room: float = 0.06
) -> Scale:
    """Return a scale with room for ``values`` and for a little more. With ``zero``, it begins at 0."""
    finite = [value for value in values if math.isfinite(value) and (value > 0 or not log)]
    low, high = (min(finite), max(finite)) if finite else (1.0, 1.0)
    if log:
        more = max((high / low) ** room, 1.05)
        return Scale(low / more, high * more, start, end, log=True)
    space = (high - low) * room or abs(high) * 0.1 or 1.0
    return Scale(0.0 if zero else low - space, high + space, start, end)


def times_of(scale: Scale) -> tuple[Tick, ...]:
    """Return the ends and the middle of a scale of timestamps: as days, or with the time where days are too coarse."""
    form = "%d %b %Y" if scale.high - scale.low > 3 * _DAY_S else "%d %b %H:%M"
    values = (scale.low, (scale.low + scale.high) / 2, scale.high)
    return tuple(Tick(scale.at(value), datetime.fromtimestamp(value, UTC).strftime(form)) for value in values)


def _decades(low: float, high: float) -> tuple[float, ...]:
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    for factors in ((1, 2, 5), (1, 3), (1,)):
        values = tuple(
            factor * 10.0**power
            for power in range(first, last + 1)
            for factor in factors
            if low <= factor * 10.0**power <= high
        )
        if len(values) <= _MAX_TICKS + 1:
            return values
    return values[:: math.ceil(len(values) / _MAX_TICKS)]


def _rounds(low: float, high: float) -> tuple[float, ...]:
    rough = (high - low) / _MAX_TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * step for step in _STEPS if power * step >= rough)
    return tuple(step * number for number in range(math.ceil(low / step), math.floor(high / step) + 1))


def _short(value: float) -> str:
    for size, name in _PREFIXES:
        if abs(value) >= size:
            return f"{value / size:.3g} {name}"
    return f"{value:.3g}"
