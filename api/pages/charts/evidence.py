"""Charts of the evidence for one evaluation: its timed calls, its place under the roofline, and its wrong elements."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from api.pages.charts.drawing import BOTTOM, LEFT, RIGHT, TOP, Bar, Chart, Point, dotted
from api.pages.charts.scales import Scale, scale_over
from kerneljudge.records import RooflineRecord

__all__ = ["calls_in_order", "error_pattern", "latencies", "roofline_plot"]

_BINS: Final = 32
_MAX_POINTS: Final = 200
_PATTERN: Final = 200.0


def latencies(candidate: Sequence[float], baseline: Sequence[float]) -> Chart | None:
    """Return a histogram of the timed calls of candidate and baseline."""
    every = sorted([*candidate, *baseline])
    if not every:
        return None
    # The slowest hundredth is left out; it would squeeze all others into a few bins.
    high = every[min(len(every) - 1, math.ceil(0.99 * len(every)))]
    x = scale_over([every[0], high], LEFT, RIGHT, room=0.02)
    counts = {"candidate": _counted(candidate, x), "baseline": _counted(baseline, x)}
    y = Scale(0.0, float(max(max(each) for each in counts.values())) * 1.05, BOTTOM, TOP)
    width = (RIGHT - LEFT) / _BINS
    bars = [
        Bar(round(LEFT + number * width, 1), y.at(count), round(width - 1, 1), round(BOTTOM - y.at(count), 1), kind)
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
    """Return the chart of all timed calls in the order in which they were taken. It shows drifts and modes."""
    if not candidate or not baseline:
        return None
    x = Scale(1.0, max(len(candidate), len(baseline), 2), LEFT, RIGHT)
    y = scale_over([*candidate, *baseline], BOTTOM, TOP, zero=True)
    sides = (("candidate", candidate), ("baseline", baseline))
    step = math.ceil(max(len(candidate), len(baseline)) / _MAX_POINTS)
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
                dotted((x.at(number), y.at(value)) for number, value in list(enumerate(values, 1))[::step]),
            )
            for kind, values in sides
        ],
        legend=[("dots candidate", "candidate"), ("dots baseline", "baseline")],
    )


def roofline_plot(roofline: RooflineRecord, candidate_ms: float, baseline_ms: float) -> Chart | None:
    """Return the chart of rates over intensity under the roofline; ``None`` where the reference computes nothing.

    The operations are those that are counted for the reference.
    """
    operations, intensity = roofline["operations"], roofline["intensity"]
    peak, bytes_per_s = roofline["operations_per_s"], roofline["bytes_per_s"]
    if not operations or not peak or not bytes_per_s:
        return None
    ridge = peak / bytes_per_s
    rates = [1000 * operations / each for each in (candidate_ms, baseline_ms)]
    x = scale_over([intensity / 8, intensity * 8, ridge / 8, ridge * 8], LEFT, RIGHT, log=True)
    y = scale_over([*rates, peak, x.low * bytes_per_s], BOTTOM, TOP, log=True)
    slope = max(x.low, y.low / bytes_per_s)
    roof = f"M{x.at(slope)} {y.at(slope * bytes_per_s)}L{x.at(ridge)} {y.at(peak)}H{RIGHT}"
    place = x.at(intensity)
    return Chart(
        title="Roofline",
        description=f"At {intensity:.3g} operations per byte the candidate reaches {_rate(rates[0])}, the "
        f"baseline {_rate(rates[1])}; the device's roof there is "
        f"{_rate(min(peak, intensity * bytes_per_s))}.",
        x_label="operations per byte",
        y_label="op/s",
        x_ticks=x.ticks(),
        y_ticks=y.ticks(),
        paths=[("line", roof), ("guide", f"M{place} {TOP}V{BOTTOM}")],
        points=[
            Point(place, y.at(rates[1]), f"baseline: {_rate(rates[1])}", kind="baseline"),
            Point(place, y.at(rates[0]), f"candidate: {_rate(rates[0])}", kind="candidate"),
        ],
        legend=[("line", "roof"), ("candidate", "candidate"), ("baseline", "baseline")],
    )


def error_pattern(mismatch: Mapping[str, Any]) -> tuple[float, float, tuple[Point, ...]] | None:
    """Return the places of the worst elements of a tensor: width, height and points; ``None`` where it has no extent.

    The tensor is drawn as rows by columns: all dimensions but the last by the last.
    """
    shape = [int(extent) for extent in mismatch["shape"]] or [1]
    rows, columns = math.prod(shape[:-1]), shape[-1]
    if not rows or not columns:
        return None
    # The shape is the tensor's, but never so narrow that nothing can be seen.
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


def _counted(values: Sequence[float], scale: Scale) -> list[int]:
    counts = [0] * _BINS
    for value in values:
        share = (value - scale.low) / (scale.high - scale.low)
        counts[min(max(int(share * _BINS), 0), _BINS - 1)] += 1
    return counts


def _rate(operations_per_s: float) -> str:
    for size, name in ((1e12, "T"), (1e9, "G"), (1e6, "M")):
        if operations_per_s >= size:
            return f"{operations_per_s / size:.3g} {name}op/s"
    return f"{operations_per_s:.3g} op/s"
