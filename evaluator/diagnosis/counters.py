"""Running ``ncu`` for hardware counters, and reading its table (``--csv --page raw``)."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from typing import Final

from evaluator.builder.resources import short_name
from kerneljudge.terms.findings import KernelCounters

__all__ = ["METRICS", "not_permitted", "parse_counters", "tool_error"]

METRICS: Final = {
    "duration_us": "gpu__time_duration.sum",
    "read_bytes": "dram__bytes_read.sum",
    "written_bytes": "dram__bytes_write.sum",
    "memory_share": "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "compute_share": "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "occupancy": "sm__warps_active.avg.pct_of_peak_sustained_active",
    "registers": "launch__registers_per_thread",
    "static_shared_bytes": "launch__shared_mem_per_block_static",
    "dynamic_shared_bytes": "launch__shared_mem_per_block_dynamic",
}
"""The requested metrics, by the field that each fills."""

_WHOLE: Final = ("registers", "static_shared_bytes", "dynamic_shared_bytes")
_MAX_LAUNCHES: Final = 64
_MAX_TEXT: Final = 300
_NOT_PERMITTED: Final = "ERR_NVGPUCTRPERM"
_ERROR: Final = re.compile(r"^==ERROR==\s*(?P<text>.+)$", re.MULTILINE)
_BYTES: Final = {"byte": 1.0, "kbyte": 1e3, "mbyte": 1e6, "gbyte": 1e9, "kibyte": 2.0**10, "mibyte": 2.0**20}
# To the unit of each field: microseconds, bytes, shares of one.
_UNITS: Final = {
    **_BYTES,
    **{f"{unit}/block": factor for unit, factor in _BYTES.items()},
    **dict.fromkeys(("nsecond", "ns"), 1e-3),
    **dict.fromkeys(("usecond", "us"), 1.0),
    **dict.fromkeys(("msecond", "ms"), 1e3),
    **dict.fromkeys(("second", "s"), 1e6),
    "%": 0.01,
}


def not_permitted(text: str) -> bool:
    """Whether the driver gives the counters to administrators alone."""
    return _NOT_PERMITTED in text


def tool_error(text: str) -> str:
    """Return the tool's message about its own failure; empty where there is none."""
    match = _ERROR.search(text)
    return "" if match is None else match["text"].strip()[:_MAX_TEXT]


def parse_counters(text: str) -> tuple[KernelCounters, ...]:
    """Parse the launches, in order. The table has a line of names, one of units, and one for each launch."""
    longest = csv.field_size_limit()  # the reader takes no longer lines
    lines = [line for line in text.splitlines() if line.startswith('"') and len(line) < longest]
    rows = list(csv.reader(lines))
    if len(rows) < 2 or "Kernel Name" not in rows[0]:
        return ()
    names, units = rows[0], dict(zip(rows[0], rows[1], strict=False))
    launches = [dict(zip(names, row, strict=False)) for row in rows[2 : 2 + _MAX_LAUNCHES] if len(row) == len(names)]
    return tuple(_counters(launch, units) for launch in launches)


def _counters(launch: Mapping[str, str], units: Mapping[str, str]) -> KernelCounters:
    figures: dict[str, float | int | None] = {}
    for field, metric in METRICS.items():
        value = _value(launch.get(metric, ""), units.get(metric, ""))
        figures[field] = int(value) if value is not None and field in _WHOLE else value
    return KernelCounters(
        short_name(launch["Kernel Name"])[:_MAX_TEXT],
        launch.get("Grid Size", "")[:50],
        launch.get("Block Size", "")[:50],
        **figures,  # type: ignore[arg-type] # by the names of METRICS
    )


def _value(text: str, unit: str) -> float | None:
    try:
        value = float(text.replace(",", ""))
    except ValueError:
        return None
    # A counter that counted nothing reports NaN or infinity.
    return value * _UNITS.get(unit.lower(), 1.0) if abs(value) < 1e30 else None
