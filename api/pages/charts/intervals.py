"""Intervals of ranked results: their coordinates in a row, and the ranks that overlapping intervals share."""

from __future__ import annotations

from collections.abc import Sequence

from api.pages.charts.scales import scale_over
from storage.leaderboards.read import Entry

__all__ = ["bars_of", "ends_of", "places_of"]


def bars_of(entries: Sequence[Entry], width: float = 180.0) -> dict[str, tuple[float, float, float]]:
    """Return the coordinates of each entry's interval by its submission: begin, end, and the speedup between them.

    Under ``""`` is the coordinate of 1, which is the baseline, where the scale contains it.
    """
    spans = {entry.submission_id: (*ends_of(entry), entry.speedup) for entry in entries}
    if not spans:
        return {}
    scale = scale_over([value for span in spans.values() for value in span], 3.0, width - 3.0, log=True, room=0.02)
    found = {name: (scale.at(low), scale.at(high), scale.at(middle)) for name, (low, high, middle) in spans.items()}
    if scale.low <= 1.0 <= scale.high:
        found[""] = (scale.at(1.0),) * 3
    return found


def ends_of(entry: Entry) -> tuple[float, float]:
    """Return the interval of a ranked entry: low and high end. Without an interval, both are the speedup."""
    interval = entry.speedup_interval
    return (entry.speedup, entry.speedup) if interval is None else (interval.low, interval.high)


def places_of(ends: Sequence[tuple[float, float]], first: int = 1) -> list[int]:
    """Return the rank of each of these intervals, which are in falling order of speedup. The first has rank ``first``.

    Entries share a rank where their interval reaches the interval of the first of them.
    """
    places: list[int] = []
    reached = 0.0
    for number, (low, high) in enumerate(ends, first):
        if places and high >= reached:
            places.append(places[-1])
        else:
            places.append(number)
            reached = low
    return places
