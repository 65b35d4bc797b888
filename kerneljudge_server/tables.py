"""Vettings and plans of memory as tables for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from evaluator.problems.memory_check import Planned
from evaluator.problems.vetting import MEANING, Vetting
from kerneljudge.cli.render import indented, plain

__all__ = ["plans", "vetting"]

_DASH: Final = "\N{EN DASH}"


def vetting(found: Vetting) -> RenderableType:
    """Show a vetting: its trials, its findings and their consequence."""
    head = Text.assemble((found.problem, "bold"), f"  ({found.device}, {found.size}, {found.precision})")
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 2))
    for column in ("check", "inputs", "verdict", "gradients"):
        table.add_column(column, no_wrap=True)
    table.add_column("message", overflow="fold")
    for check in found.checks:
        verdict = _DASH if check.verdict is None else check.verdict.replace("_", " ")
        message = plain(check.message).partition("\n")[0]
        cells = (check.name, str(check.inputs), verdict, check.gradients.replace("_", " "), message)
        table.add_row(*map(Text, cells))
    labels = [indented(f"{label}: {MEANING[label]}") for label in found.labels] or [indented("nothing was found")]
    if found.refused:
        follows = [indented(f"not ranked: {reason}", "red") for reason in found.refusals]
    else:
        follows = [indented("ranked", "green")]
    return Group(head, table, *labels, *follows, Text())


def plans(found: Sequence[Planned], memory_gib: float) -> RenderableType:
    """Show the memory that each problem needs, and whether it fits."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in ("problem", "size", "precision"):
        table.add_column(column, no_wrap=True)
    table.add_column("GiB", justify="right", no_wrap=True)
    table.add_column("", overflow="fold")
    for each in found:
        needed = _DASH if each.planned_bytes is None else f"{each.planned_bytes / 2**30:.1f}"
        cells = (each.problem, each.size, each.precision, needed)
        table.add_row(*(Text(plain(cell)) for cell in cells), _fits(each))
    fitting = sum(each.fits for each in found)
    return Group(table, Text(f"{fitting} of {len(found)} fit on {memory_gib:g} GiB"))


def _fits(found: Planned) -> Text:
    if found.planned_bytes is None:
        return Text(f"cannot be planned: {plain(found.message)}", "red")
    if not found.fits:
        would = f"{found.scale} of its bytes would" if found.scale else "nor would any part of it"
        return Text(f"does not fit, {would}: {found.message}", "red")
    return Text("fits; candidate and baseline take turns" if found.lean else "fits", "green")
