"""The limits of an evaluation, and of a candidate's source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

__all__ = ["MAX_SOURCE_BYTES", "SETTABLE_LIMITS", "Limits", "checked_limits", "limits_text", "parse_limits"]

MAX_SOURCE_BYTES: Final = 300_000
"""Source and answers above this size (in UTF-8) are rejected without being read."""

_DAY_S: Final = 86400.0
_MOST: Final = {
    **dict.fromkeys(
        ("build_s", "late_build_s", "load_s", "construct_s", "call_s", "call_floor_s", "total_s"),
        _DAY_S,
    ),
    "call_factor": 1e9,
    "device_memory_bytes": 2**50,
    "memory_bytes": 2**50,
    "disk_bytes": 2**50,
    "processes": 2**22,
    "log_bytes": 2**30,
}
"""The bounds of each limit. NaN is within none."""
SETTABLE_LIMITS: Final = (
    "build_s",
    "late_build_s",
    "load_s",
    "construct_s",
    "call_s",
    "call_factor",
    "call_floor_s",
    "total_s",
)
"""Limits that a machine, a problem and a caller may set."""


@dataclass(frozen=True)
class Limits:
    """Wall-clock and memory limits of one evaluation. Times in seconds, memory in bytes.

    - ``total_s`` bounds the whole evaluation: one that has not ended by then is ``timeout``. A second evaluation,
      made because the first one seemed to leave time out, gets it anew.
    - ``device_memory_bytes`` of ``None`` stands for the device's free memory, ``memory_bytes`` of ``None`` for half
      of the machine's memory.
    - ``late_build_s`` is added to constructing and to the first two calls with and without a backward. There may be
      compilation in them that could not be found before: ``torch.compile`` compiles in the first call, and may record
      graphs in the second.
    - Later calls may take ``call_factor`` times as long as the baseline's, but ``call_floor_s`` in any case and
      ``call_s`` at the most.
    - ``disk_bytes`` is for all files that the candidate writes.
    - ``processes`` counts threads, too; ``None`` stands for the need of OpenMP, ``torch.compile`` and the driver on
      as many processors as the machine has.
    """

    build_s: float = 600.0
    late_build_s: float = 180.0
    load_s: float = 120.0
    construct_s: float = 120.0
    call_s: float = 60.0
    call_factor: float = 1000.0
    call_floor_s: float = 20.0
    total_s: float = 1800.0
    device_memory_bytes: int | None = None
    memory_bytes: int | None = None
    disk_bytes: int = 2**30
    processes: int | None = None
    log_bytes: int = 64 * 1024

    def __post_init__(self) -> None:
        for name, most in _MOST.items():
            value = getattr(self, name)
            if value is not None and not 0 <= value <= most:
                raise ValueError(f"{name} must be between 0 and {most:g}, not {value!r}")

    def lowered(self, to: Mapping[str, float]) -> Limits:
        """Return these limits, with none above the value that ``to`` has by its name."""
        return replace(self, **{name: min(getattr(self, name), value) for name, value in to.items()})

    def later_call_s(self, baseline_s: float | None) -> float:
        """Return the limit of a call without compilation, in seconds.

        ``baseline_s``: the duration of the baseline's call; ``None`` where it is not known yet.
        """
        if baseline_s is None:
            return self.call_s
        return min(self.call_s, max(self.call_floor_s, self.call_factor * baseline_s))


def parse_limits(text: str) -> dict[str, float]:
    """Parse ``call_s=120, total_s=900`` into fields of ``Limits``; empty text has none. Raises ``ValueError``."""
    found: dict[str, float] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, sign, value = (word.strip() for word in part.partition("="))
        if not sign:
            raise ValueError(f"a limit is given as NAME=VALUE, not {part!r}")
        found[name] = float(value)
    return checked_limits(found)


def limits_text(values: Mapping[str, float]) -> str:
    """Write ``values`` as ``parse_limits`` takes them, in one order; whole numbers without a point."""
    return ",".join(f"{name}={value:.17g}" for name, value in sorted(values.items()))


def checked_limits(values: Mapping[str, Any]) -> dict[str, float]:
    """Return ``values``, by the names of ``SETTABLE_LIMITS``. Raises ``ValueError``."""
    for name, value in values.items():
        if name not in SETTABLE_LIMITS:
            raise ValueError(f"there is no limit {name!r}; there are {', '.join(SETTABLE_LIMITS)}")
        if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
            raise ValueError(f"{name} must be a number above 0, not {value!r}")
    Limits(**values)
    return dict(values)
