"""Reading a compiler's output: the first real error, and the kernels of a finished library.

A candidate decides the text that a compiler prints. Every expression here takes time in proportion to the text.
"""

from __future__ import annotations

import contextlib
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

__all__ = ["demangled", "first_error", "foreign_header_missing", "kernel_names"]

_GNU: Final = re.compile(r"^(?P<file>[^\s:][^:]*):(?P<line>\d+)(?::\d+)?: (?:fatal )?error: (?P<text>.*)$")
_NVCC: Final = re.compile(
    r"^(?P<file>[^\s(][^(]*)\((?P<line>\d+)\): (?:catastrophic )?error(?: #[\w-]+)?: (?P<text>.*)$"
)
_LINKER: Final = re.compile(r"(undefined reference to .*|multiple definition of .*|cannot find -l\S+)")
_OTHER: Final = re.compile(r"^(?:nvcc |ptxas |ninja: |\w++(?:\.\w*+)?: )?(?:fatal|error)\s*:\s*(?P<text>.*)$")
_NO_HEADER: Final = re.compile(
    r"(?<![\w./+-])(?P<header>[\w./+-]++): No such file or directory|cannot open source file \"(?P<other>[^\"]+)\""
)
_STUB: Final = re.compile(r"^.*?__device_stub__(\w++)\(", re.MULTILINE)
_MAX_LINE: Final = 2000
"""Characters of a log's line that are read. A message is no longer, whatever an ``#error`` prints."""


def first_error(log: str, build_directory: str) -> str | None:
    """Return the first real error in ``log`` as ``file:line: text`` with the lines that explain it, or ``None``.

    Errors in the candidate's own files come before errors in headers; the build directory is cut off.
    """
    lines = _lines(log)
    found: list[tuple[int, str]] = []
    for number, line in enumerate(lines):
        match = _GNU.match(line) or _NVCC.match(line)
        if match:
            own = match["file"].startswith((build_directory, "main.cpp", "cuda.cu")) or "/" not in match["file"]
            name = match["file"].removeprefix(build_directory).lstrip("/")
            context = [text for text in lines[number + 1 : number + 4] if text[:1].isspace()]
            found.append((0 if own else 1, "\n".join([f"{name}:{match['line']}: {match['text']}", *context])))
    if found:
        return min(found, key=lambda item: item[0])[1]
    for line in lines:
        match = _LINKER.search(line)
        if match:
            return match[0]
    for line in lines:
        match = _OTHER.match(line)
        if match:
            return match["text"]
    return None


def foreign_header_missing(log: str, build_directory: str) -> str | None:
    """Return a header that this machine lacks and that a file *not* of the candidate's includes, or ``None``.

    That is a gap of the toolkit installed here, not a mistake of the candidate's.
    """
    for line in _lines(log):
        match = _GNU.match(line) or _NVCC.match(line)
        missing = _NO_HEADER.search(match["text"]) if match else None
        if match and missing and match["file"].startswith("/") and not match["file"].startswith(build_directory):
            return missing["header"] or missing["other"]
    return None


def _lines(log: str) -> list[str]:
    return [line[:_MAX_LINE] for line in log.splitlines()]


def kernel_names(library: Path) -> list[str]:
    """Return the names of the CUDA kernels whose launch stubs ``library`` contains, demangled; empty for none."""
    listing = subprocess.run(["nm", "--demangle", str(library)], capture_output=True, text=True, errors="replace")
    mangled = sorted(set(_STUB.findall(listing.stdout)))
    if not mangled:
        return []
    names = [name if name.startswith("_Z") else f"_{name}" for name in mangled]
    return sorted({name.partition("(")[0].removeprefix("void ") for name in demangled(names)})


def demangled(names: Sequence[str]) -> list[str]:
    """Return ``names`` as they are written in C++, or unchanged where there is no ``c++filt``."""
    with contextlib.suppress(OSError):
        filtered = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True, errors="replace")
        plain = filtered.stdout.splitlines()
        if len(plain) == len(names):
            return plain
    return list(names)
