"""From a line of the compiler's file to the line of the candidate's Python source that it came from."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from evaluator.builder.request import BuildRequest
from evaluator.candidates.candidate import parse_quietly
from evaluator.source_flags.extensions import find_extensions
from evaluator.source_flags.module import Module
from kerneljudge.terms.findings import Fault

__all__ = ["IMPLICIT_LINES", "SourceMap"]

IMPLICIT_LINES: Final = 3
"""Lines that ``load_inline`` puts before the CUDA sources, and their first words."""
_GENERATED: Final = {"cuda.cu": ("cuda_sources", IMPLICIT_LINES), "main.cpp": ("cpp_sources", 1)}
"""The files that ``load_inline`` writes: the argument of each, and the number of lines that precede it."""
_POSITIONAL: Final = ("name", "cpp_sources", "cuda_sources")
_MAX_CODE: Final = 200
_COMPILED: Final = re.compile(r"^(?P<file>main\.cpp|cuda\.cu):(?P<line>[0-9]{1,7}): ", re.MULTILINE)
_FRAME: Final = re.compile(r"^  candidate\.py, line (?P<line>[0-9]{1,7}), in .*$", re.MULTILINE)


class SourceMap:
    """The C++ and CUDA texts that stand in a candidate's source as they are, and their places.

    Texts that are put together at run time are not found. A text that names its own file (``#line``) is not believed.
    """

    def __init__(self, source: str) -> None:
        self._source = source
        self._lines = source.splitlines()

    @cached_property
    def _texts(self) -> list[_Text]:
        found: list[_Text] = []
        try:
            module = Module(parse_quietly(self._source))
        except (SyntaxError, ValueError, RecursionError):
            return found
        for extension in find_extensions(module):
            implicit = _argument(extension.call, "no_implicit_headers") is None
            for file, (argument, implicit_lines) in _GENERATED.items():
                given = _argument(extension.call, argument)
                number = (implicit_lines if implicit else 0) + 1
                for text in module.texts(given) or () if given is not None else ():
                    place = _literal(module, text)
                    if place is not None and not BuildRequest("x", cuda_sources=(text,)).renames_lines:
                        found.append(_Text(file, text, number, place))
                    number += text.count("\n") + 1
        return found

    def named_by(self, message: str) -> int | None:
        """Return the candidate's line that an error's message points to; ``None`` where it names none."""
        compiled = _COMPILED.search(message)
        if compiled is not None:
            return self.line_of(compiled["file"], int(compiled["line"]))
        # The frames are those in the candidate's own files, the innermost last.
        frames = list(_FRAME.finditer(message))
        return int(frames[-1]["line"]) if frames else None

    def locate(self, fault: Fault) -> Fault:
        """Add the candidate's own line and its code to ``fault``, where exactly one line is possible."""
        if fault.file is None or fault.line is None:
            return fault
        line = self.line_of(fault.file, fault.line, _base(fault.kernel))
        return fault if line is None else replace(fault, candidate_line=line, code=self.code_at(line))

    def line_of(self, file: str, line: int, containing: str = "") -> int | None:
        """Return the candidate's line for ``line`` of a compiled ``file``, where exactly one line is possible.

        Only texts that contain ``containing`` count.
        """
        found = {
            text.place + line - text.first
            for text in self._texts
            if text.file == file and text.first <= line <= text.last and containing in text.text
        }
        return found.pop() if len(found) == 1 else None

    def code_at(self, line: int) -> str:
        """Return the candidate's ``line`` without its indentation; empty where there is no such line."""
        return self._lines[line - 1].strip()[:_MAX_CODE] if 1 <= line <= len(self._lines) else ""


@dataclass(frozen=True)
class _Text:
    """One text that is compiled: the lines of ``file`` from ``first`` on, and of the source from ``place`` on."""

    file: str
    text: str
    first: int
    place: int

    @property
    def last(self) -> int:
        return self.first + self.text.count("\n")


def _base(kernel: str | None) -> str:
    """A kernel's name as it stands in its source."""
    return (kernel or "").partition("<")[0].rpartition("::")[2]


def _argument(call: ast.Call, name: str) -> ast.expr | None:
    given = dict(zip(_POSITIONAL, call.args, strict=False))
    given |= {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg is not None}
    return given.get(name)


def _literal(module: Module, text: str) -> int | None:
    """Return the line at which the literal ``text`` begins, if each of its lines is one of the source's."""
    places = {
        node.lineno
        for node in module.nodes
        if isinstance(node, ast.Constant)
        and node.value == text
        and (node.end_lineno or 0) - node.lineno == text.count("\n")
    }
    return places.pop() if len(places) == 1 else None
