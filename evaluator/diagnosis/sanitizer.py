"""Reading the output of ``compute-sanitizer``.

Every line of it begins with ``=========``. A report is a headline, and below it, indented, the place and the thread.
The text comes from a process that a candidate could have written to: it is cut to size, and treated as plain text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from evaluator.builder.resources import short_name
from kerneljudge.terms.findings import Fault

__all__ = ["parse_faults", "tool_error"]

_MAX_FAULTS: Final = 16
_MAX_DETAILS: Final = 6
_MAX_TEXT: Final = 300
_MAX_LINE: Final = 8192
"""Characters of a line that are read: a mangled name has a few thousand, a candidate's output any number."""

_LINE: Final = re.compile(r"^=========(?P<indent>\s*)(?P<text>.*)$")
_OWN_TROUBLE: Final = r"Internal |Target application|Error: (?!Race|Potential)|Fatal|No CUDA"
_TROUBLE: Final = re.compile(_OWN_TROUBLE, re.IGNORECASE)
_NO_FAULT: Final = re.compile(
    rf"COMPUTE-SANITIZER|\w+ SUMMARY|Warning: (?!Race|Potential)|This tool|{_OWN_TROUBLE}", re.IGNORECASE
)
_FRAME: Final = re.compile(
    r"(?:^at|^Device Frame:|access (?:at|by)|\bat) (?:(?:0x[0-9a-f]+ in )?(?P<old_file>[^:\s]+\.\w+):(?P<old_line>\d+):"
    r"(?P<old_kernel>\w.*)|(?P<kernel>.+?)\+0x[0-9a-f]+(?: in (?P<file>[^\s\[]+?):(?P<line>\d+))?(?:\s|$))"
)
_THREAD: Final = re.compile(r"by thread \((?P<thread>\d+,\s*\d+,\s*\d+)\) in block \((?P<block>\d+,\s*\d+,\s*\d+)\)")
_DETAIL: Final = re.compile(r"^(?:Address|Access|and (?:is|Read|Write)|is |Nearest|Current Value)", re.IGNORECASE)
_HOST: Final = re.compile(r"^(?:Saved host backtrace|Host Frame)")


@dataclass
class _Report:
    headline: str
    lines: list[str] = field(default_factory=list)


def parse_faults(text: str) -> tuple[Fault, ...]:
    """Parse every fault, in the order of its first report; faults at one place are one, and counted."""
    found: dict[tuple[str, str | None, str | None, int | None], Fault] = {}
    for report in _reports(text):
        fault = _fault(report)
        key = (fault.what, fault.kernel, fault.file, fault.line)
        if key in found:
            found[key] = replace(found[key], count=found[key].count + 1)
        elif len(found) < _MAX_FAULTS:
            found[key] = fault
    return tuple(found.values())


def tool_error(text: str) -> str:
    """Return the tool's message about its own failure; empty where there is none."""
    for line in text.splitlines():
        match = _LINE.match(line[:_MAX_LINE])
        if match and _TROUBLE.match(match["text"]):
            return match["text"][:_MAX_TEXT]
    return ""


def _reports(text: str) -> Iterator[_Report]:
    report: _Report | None = None
    for line in text.splitlines():
        match = _LINE.match(line[:_MAX_LINE])
        if match is None or not match["text"].strip():
            continue
        if len(match["indent"]) <= 1:
            if report is not None:
                yield report
            headline = match["text"].strip()
            report = None if _NO_FAULT.match(headline) else _Report(headline)
        elif report is not None:
            report.lines.append(match["text"].strip())
    if report is not None:
        yield report


def _fault(report: _Report) -> Fault:
    what = report.headline
    race = re.match(r"(?:Error|Warning): (?P<what>(?:Potential )?\w+ (?:hazard|reported).*)", what)
    fault = Fault(what=_cut(race["what"] if race else what))
    frames = [what, *report.lines] if race else report.lines
    details: list[str] = []
    for line in frames:
        if _HOST.match(line):
            break
        frame, thread = _FRAME.search(line), _THREAD.search(line)
        if frame is not None and fault.kernel is None:
            fault = _placed(fault, frame)
            if race:
                # The place and the error are separate fields.
                fault = replace(fault, what=_cut(line[: frame.start()].removeprefix("Error: ").strip() + " access"))
        elif thread is not None and fault.thread is None:
            fault = replace(fault, thread=_triple(thread["thread"]), block=_triple(thread["block"]))
        elif _DETAIL.match(line) and len(details) < _MAX_DETAILS:
            details.append(_cut(line))
    return replace(fault, details=tuple(details))


def _placed(fault: Fault, frame: re.Match[str]) -> Fault:
    file, line = frame["file"] or frame["old_file"], frame["line"] or frame["old_line"]
    return replace(
        fault,
        kernel=short_name(frame["kernel"] or frame["old_kernel"]),
        file=None if file is None else _cut(file.rsplit("/", 1)[-1]),
        line=None if line is None else int(line[:9]),
    )


def _triple(text: str) -> tuple[int, int, int]:
    x, y, z = (int(number.strip()[:12]) for number in text.split(","))
    return x, y, z


def _cut(text: str) -> str:
    return "".join(character for character in text if character.isprintable())[:_MAX_TEXT]
