"""Tables on a terminal: the errors of a candidate, its diagnosis, and the resources of its kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from kerneljudge.records import DiagnosisRecord
from kerneljudge.terms.findings import Diagnosis, Fault, KernelCounters

__all__ = ["found", "stored", "tables"]

Plain = Callable[[str], str]

_MAX_KERNELS: Final = 16
_INDENT: Final = (0, 0, 0, 2)
_FIGURES: Final = ("expected", "got", "error", "allowed")


def tables(details: Mapping[str, Any], plain: Plain) -> Iterator[RenderableType]:
    """Yield tables of a record's ``details``, as far as they are there.

    ``plain`` removes terminal control characters.
    """
    mismatch = details.get("mismatch")
    if mismatch:
        yield Padding(_mismatch(mismatch, plain), _INDENT)
    kernels = details.get("kernels")
    if kernels:
        yield Padding(_kernels(kernels, plain), _INDENT)


def found(diagnosis: Diagnosis, plain: Plain) -> RenderableType:
    """Show a diagnosis: the outcome first, then each fault or launch, then the resources of the kernels."""
    where = f"{diagnosis.problem} ({diagnosis.device}, {diagnosis.size}, {diagnosis.precision})"
    style = "green" if diagnosis.clean else "yellow" if diagnosis.obstacle else "red"
    parts: list[RenderableType] = [
        Text.assemble((str(diagnosis.tool), f"bold {style}"), f"  {plain(where)}: {plain(diagnosis.summary())}")
    ]
    for fault in diagnosis.faults:
        parts.extend(_indented(line, plain) for line in _lines_of(fault))
    if diagnosis.error:
        parts.append(_indented(f"in {diagnosis.stage}: {diagnosis.error}", plain))
    if diagnosis.counters:
        parts.append(Padding(_counters(diagnosis.counters, plain), _INDENT))
    if diagnosis.kernels:
        parts.append(Padding(_kernels(diagnosis.kernels, plain), _INDENT))
    parts.extend(_indented(f"note: {note}", plain) for note in diagnosis.notes)
    return Group(*parts)


def stored(diagnosis: DiagnosisRecord, plain: Plain) -> RenderableType:
    """Show a diagnosis by a service, or its progress."""
    result = diagnosis["result"]
    if result is None:
        message = f": {diagnosis['message']}" if diagnosis["message"] else ""
        return _indented(f"diagnosis ({diagnosis['tool']}): {diagnosis['status']}{message}", plain)
    try:
        return Padding(found(Diagnosis.from_dict(result), plain), _INDENT)
    except (KeyError, TypeError, ValueError):
        # A newer service may send fields that are not known here.
        return _indented(f"diagnosis ({diagnosis['tool']}): {result.get('summary', diagnosis['status'])}", plain)


def _lines_of(fault: Fault) -> Iterator[str]:
    yield fault.describe()
    if fault.code:
        yield f"  {fault.candidate_line}: {fault.code}"
    for detail in fault.details:
        yield f"  {detail}"


def _indented(text: str, plain: Plain) -> Text:
    return Text("\n".join(f"  {line}" for line in plain(text).splitlines()))


def _counters(launches: Sequence[KernelCounters], plain: Plain) -> Table:
    columns = ("kernel", "grid", "block", "duration", "memory", "of peak", "computing", "occupancy", "registers")
    rows = [
        (
            launch.kernel,
            launch.grid,
            launch.block,
            _or_dash(launch.duration_us, "{:.4g} us"),
            _or_dash(launch.bandwidth_gb_s, "{:.4g} GB/s"),
            _or_dash(launch.memory_share, "{:.1%}"),
            _or_dash(launch.compute_share, "{:.1%}"),
            _or_dash(launch.occupancy, "{:.1%}"),
            _or_dash(launch.registers, "{}"),
        )
        for launch in launches
    ]
    return _table("", columns, rows, plain)


def _or_dash(value: float | None, form: str) -> str:
    return "\N{EN DASH}" if value is None else form.format(value)


def _mismatch(mismatch: Mapping[str, Any], plain: Plain) -> Table:
    shape = ", ".join(map(str, mismatch["shape"]))
    title = (
        f"{mismatch['tensor']} ({mismatch['dtype']}[{shape}], inputs {mismatch['inputs']}): "
        f"{mismatch['wrong']} of {mismatch['total']} elements are wrong, the worst of them:"
    )
    rows = [
        (f"[{', '.join(map(str, element['index']))}]", *(_number(element[name]) for name in _FIGURES))
        for element in mismatch["worst"]
    ]
    return _table(plain(title), ("index", *_FIGURES), rows, plain)


def _kernels(kernels: Sequence[Mapping[str, Any]], plain: Plain) -> Table:
    rows = [
        (
            str(kernel["name"]),
            str(kernel["arch"]),
            str(kernel["registers"]),
            str(kernel["shared_bytes"]),
            str(kernel["stack_bytes"]),
            f"{kernel['spill_store_bytes']} / {kernel['spill_load_bytes']}",
        )
        for kernel in kernels[:_MAX_KERNELS]
    ]
    columns = ("kernel", "architecture", "registers", "shared bytes", "stack bytes", "spill stores / loads")
    return _table("", columns, rows, plain)


def _table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], plain: Plain) -> Table:
    table = Table(title=Text(title) if title else None, title_justify="left", box=None, pad_edge=False)
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number == 0 else "right", overflow="fold")
    for row in rows:
        table.add_row(*(Text(plain(cell)) for cell in row))
    return table


def _number(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.6g}"
