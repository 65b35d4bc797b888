"""The parts of a chart, which the templates turn into SVG.

Coordinates are in the units of a chart's ``viewBox``: ``WIDTH`` by ``HEIGHT``, with the axes within the margins.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from api.pages.charts.scales import Tick

__all__ = ["BOTTOM", "HEIGHT", "LEFT", "RIGHT", "TOP", "WIDTH", "Bar", "Chart", "Point", "dotted"]

WIDTH: Final = 480
HEIGHT: Final = 250
LEFT, RIGHT, TOP, BOTTOM = 52.0, 470.0, 14.0, 208.0


@dataclass(frozen=True)
class Point:
    """A point with a text that is shown when the pointer is on it."""

    x: float
    y: float
    text: str
    kind: str = ""


@dataclass(frozen=True)
class Bar:
    """A rectangle. ``kind`` is its CSS class."""

    x: float
    y: float
    width: float
    height: float
    kind: str


@dataclass(frozen=True)
class Chart:
    """A chart: its axes and the marks between them.

    ``paths`` are pairs of class and path data. ``marks`` are horizontal lines, each at a height and with a text.
    """

    title: str
    description: str
    x_label: str
    y_label: str
    x_ticks: Sequence[Tick]
    y_ticks: Sequence[Tick]
    paths: Sequence[tuple[str, str]] = ()
    points: Sequence[Point] = ()
    bars: Sequence[Bar] = ()
    marks: Sequence[Tick] = ()
    legend: Sequence[tuple[str, str]] = ()
    left: float = LEFT
    right: float = RIGHT
    top: float = TOP
    bottom: float = BOTTOM


def dotted(places: Iterable[tuple[float, float]]) -> str:
    """Return a path of lines without length, which round line caps draw as dots."""
    return "".join(f"M{x} {y}h0" for x, y in places)
