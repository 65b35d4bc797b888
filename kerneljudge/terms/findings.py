"""The findings of a diagnosis, as values. Torch-free.

All of them come out of a process in which a candidate's code ran. They are shown to the candidate's author, they are
bounded, and nothing is decided by them.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Final

from kerneljudge.terms.enumeration import StrEnum

__all__ = ["Diagnosis", "Fault", "KernelCounters", "Tool"]

Triple = tuple[int, int, int]


class Tool(StrEnum):
    """The kind of a diagnosis. ``counters`` is ``ncu``; all others are tools of ``compute-sanitizer``."""

    MEMCHECK = "memcheck"
    RACECHECK = "racecheck"
    INITCHECK = "initcheck"
    SYNCCHECK = "synccheck"
    COUNTERS = "counters"

    @property
    def program(self) -> str:
        return "ncu" if self is Tool.COUNTERS else "compute-sanitizer"

    def usual_size(self, sizes: Container[str], whole: str) -> str:
        """Return ``smoke``, if ``sizes`` has it, because a tool makes a kernel many times slower; else ``whole``.

        Counters use the ``whole`` size: the figures of a small one tell little.
        """
        return "smoke" if self is not Tool.COUNTERS and "smoke" in sizes else whole


@dataclass(frozen=True)
class Fault:
    """One error of a kernel, with the number of reports at the same place.

    ``file`` and ``line`` are the compiler's. ``candidate_line`` is the corresponding line of the candidate's own Python
    source, where it is known. ``thread`` and ``block`` are the first reported ones.
    """

    what: str
    kernel: str | None = None
    file: str | None = None
    line: int | None = None
    candidate_line: int | None = None
    code: str = ""
    thread: Triple | None = None
    block: Triple | None = None
    details: tuple[str, ...] = ()
    count: int = 1

    def describe(self) -> str:
        """Describe the fault in one sentence."""
        parts = [self.what]
        if self.kernel is not None:
            parts.append(f"in kernel {self.kernel}")
        if self.candidate_line is not None:
            parts.append(f"at line {self.candidate_line}")
        elif self.file is not None and self.line is not None:
            parts.append(f"at {self.file}:{self.line}")
        if self.thread is not None and self.block is not None:
            parts.append(f"by thread {self.thread} of block {self.block}")
        if self.count > 1:
            parts.append(f"and {self.count - 1} more there")
        return " ".join(parts)


@dataclass(frozen=True)
class KernelCounters:
    """The hardware counters of one launch. ``None``: not reported. Shares are of the device's peak."""

    kernel: str
    grid: str = ""
    block: str = ""
    duration_us: float | None = None
    read_bytes: float | None = None
    written_bytes: float | None = None
    memory_share: float | None = None
    compute_share: float | None = None
    occupancy: float | None = None
    registers: int | None = None
    static_shared_bytes: int | None = None
    dynamic_shared_bytes: int | None = None

    @property
    def bandwidth_gb_s(self) -> float | None:
        """Bytes read from and written to the device's memory, divided by the launch's duration, in GB/s."""
        if self.duration_us is None or self.read_bytes is None or self.written_bytes is None or self.duration_us <= 0:
            return None
        return (self.read_bytes + self.written_bytes) / self.duration_us / 1000

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "bandwidth_gb_s": self.bandwidth_gb_s}


_TRIPLES: Final = ("thread", "block")


@dataclass(frozen=True)
class Diagnosis:
    """The findings of one tool in one forward and one backward of a candidate.

    ``stage``: the candidate's last stage (``starting``, ``importing``, ``constructing``, ``forward``, ``backward``,
    ``done``), and ``error`` the exception that it raised there. ``obstacle``: why the tool itself reported nothing;
    empty where it did report. ``kernels`` are the figures of the build (``resources.KernelResources``).
    """

    tool: Tool
    problem: str
    device: str
    size: str
    precision: str
    stage: str
    seconds: float
    faults: tuple[Fault, ...] = ()
    counters: tuple[KernelCounters, ...] = ()
    kernels: tuple[Mapping[str, Any], ...] = ()
    error: str = ""
    obstacle: str = ""
    printed: str = ""
    notes: tuple[str, ...] = field(default=())

    @property
    def clean(self) -> bool:
        """Whether the tool did its work, the candidate came to its end, and there is nothing to report."""
        return not self.faults and not self.obstacle and not self.error and self.stage == "done"

    def summary(self) -> str:
        """The outcome in one sentence."""
        if self.obstacle:
            return self.obstacle
        if self.faults:
            places = f"{len(self.faults)} place{'s' * (len(self.faults) != 1)}"
            return f"{self.tool} reports faults at {places}, first: {self.faults[0].describe()}"
        if self.stage != "done":
            return f"the candidate did not come to its end ({self.stage}), and {self.tool} reports nothing"
        if self.tool is Tool.COUNTERS:
            return f"{len(self.counters)} launches of kernels were measured"
        return f"{self.tool} reports nothing wrong"

    def to_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON; ``Diagnosis.from_dict`` takes it back."""
        return {
            **asdict(self),
            "counters": [counted.to_dict() for counted in self.counters],
            "clean": self.clean,
            "summary": self.summary(),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Diagnosis:
        """Inverse of ``to_dict``. Raises ``KeyError``, ``TypeError`` or ``ValueError`` on foreign data."""
        values = {known.name: data[known.name] for known in fields(cls)}
        names = {known.name for known in fields(KernelCounters)}
        values["tool"] = Tool(values["tool"])
        values["faults"] = tuple(_fault(fault) for fault in values["faults"])
        values["counters"] = tuple(
            KernelCounters(**{name: value for name, value in counted.items() if name in names})
            for counted in values["counters"]
        )
        values["kernels"], values["notes"] = tuple(values["kernels"]), tuple(values["notes"])
        return cls(**values)


def _fault(data: Mapping[str, Any]) -> Fault:
    triples = {name: None if data[name] is None else tuple(data[name]) for name in _TRIPLES}
    return Fault(**{**data, **triples, "details": tuple(data["details"])})
