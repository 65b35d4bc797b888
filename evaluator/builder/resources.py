"""The resources of a multiprocessor that a kernel uses, as CUDA's assembler reports them during a build.

``ptxas -v`` reports them for each kernel and architecture. The option changes the printed text and no instruction. It
is given through ``NVCC_APPEND_FLAGS``, so that a candidate's own flags stay as they are. A machine without nvcc has no
figures. The figures come from a process that compiles a stranger's source: they are shown and decide nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

__all__ = ["ASKING", "KernelResources", "ResourceReader", "asks_itself", "short_name", "spill_notes"]

ASKING: Final = {"NVCC_APPEND_FLAGS": "-Xptxas=-v"}
"""The environment that makes nvcc print them."""

_MAX_KERNELS: Final = 64
_MAX_NOTES: Final = 4
_MAX_NAME: Final = 200
_MAX_VALUE: Final = 2**40
_ARCHITECTURE: Final = re.compile(r"\w{1,20}")

_ENTRY: Final = re.compile(r"^ptxas info\s*: Compiling entry function '(?P<name>[^']+)' for '(?P<arch>[^']+)'")
_FUNCTION: Final = re.compile(r"^ptxas info\s*: Function properties for '?(?P<name>[^'\s]+)'?")
_STACK: Final = re.compile(
    r"^\s+(?P<stack_bytes>\d+) bytes stack frame, (?P<spill_store_bytes>\d+) bytes spill stores, "
    r"(?P<spill_load_bytes>\d+) bytes spill loads"
)
_USED: Final = re.compile(r"^ptxas info\s*: Used (?P<registers>\d+) registers(?P<rest>.*)$")
_SHARED: Final = re.compile(r"(?<!\d)(\d++)(?:\+(\d++))? bytes smem")
_OTHER: Final = re.compile(r"^ptxas info\s*: (?:\d+ bytes gmem|Compile time = |Overriding )")
_ASKS: Final = re.compile(r"(?:^|[=,\s])(?:-v|--verbose)(?:[,\s]|$)|res(?:ource)?-usage")


@dataclass(frozen=True)
class KernelResources:
    """The resources of one kernel, built for one architecture.

    ``shared_bytes``: the declared shared memory; memory requested at a launch comes on top. ``stack_bytes`` and spills
    are local memory of each thread, which lies in the device's memory.
    """

    name: str
    arch: str
    registers: int
    shared_bytes: int = 0
    stack_bytes: int = 0
    spill_store_bytes: int = 0
    spill_load_bytes: int = 0

    @property
    def spills(self) -> bool:
        return bool(self.stack_bytes or self.spill_store_bytes or self.spill_load_bytes)

    @classmethod
    def parse_all(cls, data: object) -> tuple[KernelResources, ...]:
        """Parse the output of a compiler's process; malformed parts are left out."""
        items = [item for item in data[:_MAX_KERNELS] if isinstance(item, dict)] if isinstance(data, list) else []
        return tuple(kernel for kernel in map(cls._parse, items) if kernel is not None)

    @classmethod
    def _parse(cls, item: Mapping[str, Any]) -> KernelResources | None:
        name, arch = item.get("name"), item.get("arch")
        figures = {field: item.get(field, 0) for field in cls.__dataclass_fields__ if field not in ("name", "arch")}
        if not isinstance(name, str) or not isinstance(arch, str) or not _ARCHITECTURE.fullmatch(arch):
            return None
        if not all(type(value) is int and 0 <= value < _MAX_VALUE for value in figures.values()):
            return None
        return cls(name[:_MAX_NAME], arch, **figures)


class ResourceReader:
    """Reads a compiler's output line by line; names are as the assembler has them."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], KernelResources] = {}
        self._entry: tuple[str, str] | None = None
        self._function = ""

    @property
    def kernels(self) -> tuple[KernelResources, ...]:
        return tuple(self._found.values())

    def take(self, line: str) -> bool:
        """Whether ``line`` is a line of the assembler's report alone."""
        if match := _ENTRY.match(line):
            self._entry = (match["name"], match["arch"])
            if len(self._found) < _MAX_KERNELS:
                self._found.setdefault(self._entry, KernelResources(*self._entry, registers=0))
        elif match := _FUNCTION.match(line):
            self._function = match["name"]
        elif match := _STACK.match(line):
            if self._entry is not None and self._function == self._entry[0]:
                self._note(**{name: int(value) for name, value in match.groupdict().items()})
        elif match := _USED.match(line):
            shared = _SHARED.search(match["rest"])
            self._note(
                registers=int(match["registers"]),
                shared_bytes=sum(int(part) for part in shared.groups() if part) if shared else 0,
            )
        else:
            return bool(_OTHER.match(line))
        return True

    def _note(self, **figures: int) -> None:
        if self._entry in self._found:
            changes: dict[str, Any] = dict(figures)
            self._found[self._entry] = replace(self._found[self._entry], **changes)


def asks_itself(flags: Iterable[str]) -> bool:
    """Whether a candidate's own flags for nvcc request the report, which then belongs in the log."""
    return any(_ASKS.search(flag) for flag in flags)


def short_name(demangled: str) -> str:
    """Return a kernel's name with its template arguments, without its return type and parameters."""
    name = demangled.replace("(anonymous namespace)::", "").removeprefix("void ")
    depth = 0
    for position, character in enumerate(name):
        depth += (character == "<") - (character == ">")
        if character == "(" and depth == 0 and position:
            return name[:position][:_MAX_NAME]
    return name[:_MAX_NAME]


def spill_notes(kernels: Sequence[KernelResources]) -> tuple[str, ...]:
    """A sentence for each kernel that spills registers."""
    spilling = [kernel for kernel in kernels if kernel.spills]
    notes = [
        f"kernel {kernel.name} ({kernel.arch}) uses local memory, which lies in the device's memory: "
        f"{kernel.stack_bytes} bytes of stack for each thread, {kernel.spill_store_bytes} bytes of spill stores, "
        f"{kernel.spill_load_bytes} bytes of spill loads, {kernel.registers} registers"
        for kernel in spilling[:_MAX_NOTES]
    ]
    if len(spilling) > _MAX_NOTES:
        notes.append(f"so do {len(spilling) - _MAX_NOTES} more kernels")
    return tuple(notes)
