"""What the drawings of the pages are made of; the templates turn it into SVG.

Places are in the units of a drawing's ``viewBox``: ``WIDTH`` by ``HEIGHT``, with the axes within the margins.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from api.pages.scales import Scale, Tick, scale_over, times_of

__all__ = [
    "HEIGHT",
    "WIDTH",
    "Bar",
    "Chart",
    "Point",
    "calls_in_order",
    "error_pattern",
    "fast_p_curve",
    "history",
    "latencies",
    "roofline_plot",
]

WIDTH: Final = 480
HEIGHT: Final = 250
_LEFT, _RIGHT, _TOP, _BOTTOM = 52.0, 470.0, 14.0, 208.0
_BINS: Final = 32
_MOST_POINTS: Final = 200
_PATTERN: Final = 200.0


@dataclass(frozen=True)
class Point:
    """Something that can be pointed at."""

    x: float
    y: float
    text: str
    kind: str = ""


@dataclass(frozen=True)
class Bar:
    """A rectangle; ``kind`` is its class."""

    x: float
    y: float
    width: float
    height: float
    kind: str


@dataclass(frozen=True)
class Chart:
    """Axes and what is between them. ``paths``: class and data. ``marks``: a line across at a height, with a text."""

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
    left: float = _LEFT
    right: float = _RIGHT
    top: float = _TOP
    bottom: float = _BOTTOM


def history(records: Sequence[Any], others: Sequence[Any]) -> Chart | None:
    """Speedup over time: the line of records, and some of the other results below it."""
    every = [*records, *others]
    if not every:
        return None
    x = _time_scale([each.finished_at for each in every])
    y = scale_over([*(each.speedup for each in every), 1.0], _BOTTOM, _TOP, log=True)
    steps: list[str] = []
    for number, record in enumerate(records):
        place = x.at(record.finished_at.timestamp())
        steps.append(f"H{place}V{y.at(record.speedup)}" if number else f"M{place} {y.at(record.speedup)}")
    if steps:
        steps.append(f"H{_RIGHT}")
    best = records[-1] if records else max(others, key=lambda each: each.speedup)
    dots = [(x.at(each.finished_at.timestamp()), y.at(each.speedup)) for each in others]
    return Chart(
        title="Speedup over time",
        description=f"{len(records)} records; the highest speedup is {best.speedup:.2f}, of "
        f"{best.finished_at.date()}. The table below has every record.",
        x_label="finished (UTC)",
        y_label="speedup",
        x_ticks=times_of(x),
        y_ticks=y.ticks(),
        paths=[("dots muted", _dots(dots)), ("line", "".join(steps))],
        points=[
            Point(
                x.at(record.finished_at.timestamp()),
                y.at(record.speedup),
                f"{record.speedup:.2f} by {record.author or record.label or 'somebody'}",
            )
            for record in records
        ],
        marks=[Tick(y.at(1.0), "as fast as the baseline")],
        legend=[("line", "record"), ("dots muted", "some of the others")],
    )


def latencies(candidate: Sequence[float], baseline: Sequence[float]) -> Chart | None:
    """A histogram of the timed calls of both sides."""
    every = sorted([*candidate, *baseline])
    if not every:
        return None
    # The slowest hundredth would squeeze all the others into a few bins.
    high = every[min(len(every) - 1, math.ceil(0.99 * len(every)))]
    x = scale_over([every[0], high], _LEFT, _RIGHT, room=0.02)
    counts = {"candidate": _counted(candidate, x), "baseline": _counted(baseline, x)}
    y = Scale(0.0, float(max(max(each) for each in counts.values())) * 1.05, _BOTTOM, _TOP)
    width = (_RIGHT - _LEFT) / _BINS
    bars = [
        Bar(round(_LEFT + number * width, 1), y.at(count), round(width - 1, 1), round(_BOTTOM - y.at(count), 1), kind)
        for kind, each in counts.items()
        for number, count in enumerate(each)
        if count
    ]
    beyond = sum(value > x.high for value in every)
    return Chart(
        title="How long calls took",
        description=f"Histogram of {len(candidate)} timed calls of the candidate and {len(baseline)} of the baseline."
        + (f" {beyond} that took longer than the scale are in the last bar." if beyond else ""),
        x_label="ms",
        y_label="calls",
        x_ticks=x.ticks(),
        y_ticks=[tick for tick in y.ticks() if tick.text.isdigit()],
        bars=bars,
        legend=[("candidate", "candidate"), ("baseline", "baseline")],
    )


def calls_in_order(candidate: Sequence[float], baseline: Sequence[float]) -> Chart | None:
    """Every timed call in the order in which it was taken: drifts and modes show here."""
    if not candidate or not baseline:
        return None
    x = Scale(1.0, max(len(candidate), len(baseline), 2), _LEFT, _RIGHT)
    y = scale_over([*candidate, *baseline], _BOTTOM, _TOP, zero=True)
    sides = (("candidate", candidate), ("baseline", baseline))
    step = math.ceil(max(len(candidate), len(baseline)) / _MOST_POINTS)
    return Chart(
        title="Calls in the order in which they were taken",
        description=f"{len(candidate)} pairs of calls, candidate and baseline in turn"
        + (f"; every {step}th is drawn." if step > 1 else "."),
        x_label="pair",
        y_label="ms",
        x_ticks=[tick for tick in x.ticks() if "." not in tick.text],
        y_ticks=y.ticks(),
        paths=[
            (
                f"dots {kind}",
                _dots((x.at(number), y.at(value)) for number, value in list(enumerate(values, 1))[::step]),
            )
            for kind, values in sides
        ],
        legend=[("dots candidate", "candidate"), ("dots baseline", "baseline")],
    )


def roofline_plot(roofline: Any, candidate_ms: float, baseline_ms: float) -> Chart | None:
    """Rates over intensity under the device's roofline; ``None`` where nothing is computed by the reference's count."""
    peak = roofline.operations_per_s
    if not roofline.operations or not peak or not roofline.bytes_per_s:
        return None
    ridge = peak / roofline.bytes_per_s
    rates = [1000 * roofline.operations / each for each in (candidate_ms, baseline_ms)]
    x = scale_over([roofline.intensity / 8, roofline.intensity * 8, ridge / 8, ridge * 8], _LEFT, _RIGHT, log=True)
    y = scale_over([*rates, peak, x.low * roofline.bytes_per_s], _BOTTOM, _TOP, log=True)
    slope = max(x.low, y.low / roofline.bytes_per_s)
    roof = f"M{x.at(slope)} {y.at(slope * roofline.bytes_per_s)}L{x.at(ridge)} {y.at(peak)}H{_RIGHT}"
    place = x.at(roofline.intensity)
    return Chart(
        title="Roofline",
        description=f"At {roofline.intensity:.3g} operations per byte the candidate reaches {_rate(rates[0])}, the "
        f"baseline {_rate(rates[1])}; the device's roof there is "
        f"{_rate(min(peak, roofline.intensity * roofline.bytes_per_s))}.",
        x_label="operations per byte",
        y_label="op/s",
        x_ticks=x.ticks(),
        y_ticks=y.ticks(),
        paths=[("line", roof), ("guide", f"M{place} {_TOP}V{_BOTTOM}")],
        points=[
            Point(place, y.at(rates[1]), f"baseline: {_rate(rates[1])}", kind="baseline"),
            Point(place, y.at(rates[0]), f"candidate: {_rate(rates[0])}", kind="candidate"),
        ],
        legend=[("line", "roof"), ("candidate", "candidate"), ("baseline", "baseline")],
    )


def fast_p_curve(speedups: Sequence[float], problems: int) -> Chart | None:
    """The share of problems whose best candidate is correct with a speedup above p, over p."""
    if not problems:
        return None
    reached = sorted(speedups)
    x = Scale(0.0, max([2.0, *(math.ceil(each * 1.05) for each in reached[-1:])]), _LEFT, _RIGHT)
    y = Scale(0.0, 1.0, _BOTTOM, _TOP)
    path = [f"M{_LEFT} {y.at(len(reached) / problems)}"]
    path += [
        f"H{x.at(speedup)}V{y.at((len(reached) - number) / problems)}" for number, speedup in enumerate(reached, 1)
    ]
    path.append(f"H{_RIGHT}")
    ahead = sum(each > 1 for each in reached)
    return Chart(
        title="fast_p over p",
        description=f"{len(reached)} of {problems} problems have a correct candidate, {ahead} one that is faster than "
        "the baseline. The table beside it has the usual thresholds.",
        x_label="p",
        y_label="share of problems",
        x_ticks=x.ticks(),
        y_ticks=[Tick(y.at(share), f"{share:.0%}") for share in (0.0, 0.25, 0.5, 0.75, 1.0)],
        paths=[("guide", f"M{x.at(1.0)} {_TOP}V{_BOTTOM}"), ("line", "".join(path))],
    )


def error_pattern(mismatch: Mapping[str, Any]) -> tuple[float, float, tuple[Point, ...]] | None:
    """A tensor seen as rows by columns (all but its last dimension, its last), with its worst elements: width, height,
    and where they are. ``None`` where it has no extent."""
    shape = [int(extent) for extent in mismatch["shape"]] or [1]
    rows, columns = math.prod(shape[:-1]), shape[-1]
    if not rows or not columns:
        return None
    # As the tensor is, but never so narrow that nothing can be seen.
    ratio = min(max(rows / columns, 0.2), 1.0) if rows <= columns else min(rows / columns, 1.2)
    width, height = _PATTERN / max(ratio, 1.0), _PATTERN * min(ratio, 1.0)
    points = []
    for element in mismatch["worst"]:
        index = [int(each) for each in element["index"]] or [0]
        row = 0
        for extent, each in zip(shape[:-1], index[:-1], strict=True):
            row = row * extent + each
        points.append(
            Point(
                round((index[-1] + 0.5) / columns * width, 1),
                round((row + 0.5) / rows * height, 1),
                f"[{', '.join(map(str, index))}]",
            )
        )
    return round(width, 1), round(height, 1), tuple(points)


def _time_scale(moments: Sequence[datetime]) -> Scale:
    stamps = [moment.timestamp() for moment in moments]
    low, high = min(stamps), max(stamps)
    return Scale(low, max(high, low + 60.0), _LEFT, _RIGHT)


def _counted(values: Sequence[float], scale: Scale) -> list[int]:
    counts = [0] * _BINS
    for value in values:
        share = (value - scale.low) / (scale.high - scale.low)
        counts[min(max(int(share * _BINS), 0), _BINS - 1)] += 1
    return counts


def _dots(places: Iterable[tuple[float, float]]) -> str:
    """A path of lines without length, which round caps make dots."""
    return "".join(f"M{x} {y}h0" for x, y in places)


def _rate(operations_per_s: float) -> str:
    for size, name in ((1e12, "T"), (1e9, "G"), (1e6, "M")):
        if operations_per_s >= size:
            return f"{operations_per_s / size:.3g} {name}op/s"
    return f"{operations_per_s:.3g} op/s"
