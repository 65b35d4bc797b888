"""The comparison of two batches as tables for a terminal."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from kerneljudge.records import ComparedBatch, ComparisonRecord

__all__ = ["comparison"]

Plain = Callable[[str], str]


def comparison(record: ComparisonRecord, plain: Plain) -> RenderableType:
    """Show the differences in percentage points. ``plain`` removes control characters."""
    batch, other = record["batch"], record["other"]
    names = [plain(side["name"] or side["id"]) for side in (batch, other)]
    head = Text.assemble((f"{names[0]} minus {names[1]}", "bold"), f"  on {len(record['problems'])} common problems")
    parts: list[RenderableType] = [head]
    parts += [Text(f"  {name}: {_counts(side)}") for name, side in zip(names, (batch, other), strict=True)]
    if record["waiting"]:
        parts.append(Text(f"  {len(record['waiting'])} more are left out: one batch has none graded there", "yellow"))
    if record["unequal"]:
        parts.append(
            Text(f"  at {record['unequal']} problems one has more candidates: pass@k is the fairer figure", "yellow")
        )
    if batch["device_names"] != other["device_names"]:
        devices = [plain(", ".join(side["device_names"]) or "none yet") for side in (batch, other)]
        parts.append(Text(f"  the devices differ: {devices[0]}; {devices[1]}", "yellow"))
    if record["problems"]:
        parts.append(_table(record))
        parts.append(Text("  in percentage points, with 95 % intervals, each for itself", "dim"))
    return Group(*parts)


def _counts(side: ComparedBatch) -> str:
    found = f"{side['candidates']} candidates"
    if side["ungraded"]:
        found += f", {side['ungraded']} not graded"
    if side["only"]:
        found += f"; {len(side['only'])} more problems, which are in no figure here"
    return found


def _table(record: ComparisonRecord) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 2))
    table.add_column("")
    columns = ("first", "second", "difference", "interval", "", "both", "first alone", "second alone", "neither")
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    for each in record["fast_p"]:
        counts = (each["both"], each["batch_only"], each["other_only"], each["neither"])
        table.add_row(f"fast_{each['p']:g}", *_cells(each), *map(str, counts))
    for one in record["pass_at_k"]:
        if one["p"] in (0, 1):
            above = "" if one["p"] == 0 else f" above {one['p']:g}"
            table.add_row(f"pass@{one['k']}{above}", *_cells(one))
    return table


def _cells(each: Mapping[str, Any]) -> tuple[str, ...]:
    interval = each["interval"]
    told = "higher" if interval["low"] > 0 else "lower" if interval["high"] < 0 else ""
    return (
        f"{100 * each['batch']:.1f} %",
        f"{100 * each['other']:.1f} %",
        f"{100 * each['difference']:+.1f}",
        f"{100 * interval['low']:+.1f} to {100 * interval['high']:+.1f}",
        told,
    )
