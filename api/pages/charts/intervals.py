"""Intervals of ranked results: where each is drawn in its row, and who can be told from whom."""

from __future__ import annotations

from collections.abc import Sequence

from api.pages.charts.scales import scale_over
from storage.leaderboards.read import Entry

__all__ = ["bars_of", "ends_of", "places_of"]


def bars_of(entries: Sequence[Entry], width: float = 180.0) -> dict[str, tuple[float, float, float]]:
    """For each entry of a ranking by its submission: where its interval begins and ends, and where its speedup is;
    under ``""``, if it is within what is shown, the place of 1, where the baseline is."""
    spans = {entry.submission_id: (*ends_of(entry), entry.speedup) for entry in entries}
    if not spans:
        return {}
    scale = scale_over([value for span in spans.values() for value in span], 3.0, width - 3.0, log=True, room=0.02)
    found = {name: (scale.at(low), scale.at(high), scale.at(middle)) for name, (low, high, middle) in spans.items()}
    if scale.low <= 1.0 <= scale.high:
        found[""] = (scale.at(1.0),) * 3
    return found


def ends_of(entry: Entry) -> tuple[float, float]:
    """The interval of an entry of a ranking, which is its speedup alone where there is none."""
    interval = entry.speedup_interval
    return (entry.speedup, entry.speedup) if interval is None else (interval.low, interval.high)


def places_of(ends: Sequence[tuple[float, float]], first: int = 1) -> list[int]:
    """The place of each of these intervals, which come by falling speedups, the first of them at ``first``.

    A place is shared by all whose interval reaches that of the first of them.
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
