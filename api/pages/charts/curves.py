"""Charts of many results: the speedup over time, and the share of problems over the speedup."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from api.labels import share as percent
from api.labels import times
from api.pages.charts.drawing import BOTTOM, LEFT, RIGHT, TOP, Chart, Point, dotted
from api.pages.charts.scales import Scale, Tick, scale_over, times_of

__all__ = ["fast_p_curve", "history"]


def history(records: Sequence[Any], others: Sequence[Any]) -> Chart | None:
    """Return the chart of speedup over time: the line of records, and some of the other results below it."""
    every = [*records, *others]
    if not every:
        return None
    x = _time_scale([each.finished_at for each in every])
    y = scale_over([*(each.speedup for each in every), 1.0], BOTTOM, TOP, log=True)
    steps: list[str] = []
    for number, record in enumerate(records):
        place = x.at(record.finished_at.timestamp())
        steps.append(f"H{place}V{y.at(record.speedup)}" if number else f"M{place} {y.at(record.speedup)}")
    if steps:
        steps.append(f"H{RIGHT}")
    best = records[-1] if records else max(others, key=lambda each: each.speedup)
    below = [(x.at(each.finished_at.timestamp()), y.at(each.speedup)) for each in others]
    return Chart(
        title="Speedup over time",
        description=f"{len(records)} {'record' if len(records) == 1 else 'records'}; the highest speedup is "
        f"{times(best.speedup)}, of {best.finished_at.date()}. The table below has every record.",
        x_label="finished (UTC)",
        y_label="speedup",
        x_ticks=times_of(x),
        y_ticks=y.ticks(),
        paths=[("dots muted", dotted(below)), ("line", "".join(steps))],
        points=[
            Point(
                x.at(record.finished_at.timestamp()),
                y.at(record.speedup),
                f"{times(record.speedup)} by {record.author or record.label or 'somebody'}",
            )
            for record in records
        ],
        marks=[Tick(y.at(1.0), "as fast as the baseline")],
        legend=[("line", "record"), ("dots muted", "some of the others")],
    )


def fast_p_curve(speedups: Sequence[float], problems: int) -> Chart | None:
    """Return the chart of fast_p: the share of problems with a correct candidate of a speedup above p, over p."""
    if not problems:
        return None
    reached = sorted(speedups)
    x = Scale(0.0, max([2.0, *(math.ceil(each * 1.05) for each in reached[-1:])]), LEFT, RIGHT)
    y = Scale(0.0, 1.0, BOTTOM, TOP)
    path = [f"M{LEFT} {y.at(len(reached) / problems)}"]
    path += [
        f"H{x.at(speedup)}V{y.at((len(reached) - number) / problems)}" for number, speedup in enumerate(reached, 1)
    ]
    path.append(f"H{RIGHT}")
    ahead = sum(each > 1 for each in reached)
    return Chart(
        title="fast_p over p",
        description=f"{len(reached)} of {problems} problems have a correct candidate, {ahead} one that is faster than "
        "the baseline. The table has the usual thresholds.",
        x_label="speedup above p (lower end of the interval)",
        y_label="share of problems",
        x_ticks=x.ticks(),
        y_ticks=[Tick(y.at(share), percent(share)) for share in (0.0, 0.25, 0.5, 0.75, 1.0)],
        paths=[("guide", f"M{x.at(1.0)} {TOP}V{BOTTOM}"), ("line", "".join(path))],
    )


def _time_scale(moments: Sequence[datetime]) -> Scale:
    stamps = [moment.timestamp() for moment in moments]
    low, high = min(stamps), max(stamps)
    return Scale(low, max(high, low + 60.0), LEFT, RIGHT)
