"""From a line of the file that the compiler saw to the line of the candidate's Python source that it came from."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import Final

from evaluator.advisory.extensions import find_extensions
from evaluator.advisory.module import Module
from evaluator.build.request import BuildRequest
from evaluator.candidate import parse_quietly
from evaluator.diagnosis.findings import Fault

__all__ = ["IMPLICIT_LINES", "SourceMap"]

IMPLICIT_LINES: Final = 3
"""Lines that ``load_inline`` puts before the CUDA sources, and what they begin with."""
_GENERATED: Final = "cuda.cu"
_POSITIONAL: Final = ("name", "cpp_sources", "cuda_sources")
_MOST_CODE: Final = 200


class SourceMap:
    """The CUDA texts that stand in a candidate's source as they are, and where.

    Texts that are put together at run time are not found, and a text that says of itself which file it is
    (``#line``) is not believed.
    """

    def __init__(self, source: str) -> None:
        self._lines = source.splitlines()
        self._texts: list[tuple[str, int, int]] = []
        try:
            module = Module(parse_quietly(source))
        except (SyntaxError, ValueError, RecursionError):
            return
        for extension in find_extensions(module):
            cuda = _argument(extension.call, "cuda_sources")
            implicit = _argument(extension.call, "no_implicit_headers") is None
            number = (IMPLICIT_LINES if implicit else 0) + 1
            for text in module.texts(cuda) or () if cuda is not None else ():
                place = _literal(module, text)
                if place is not None and not BuildRequest("x", cuda_sources=(text,)).renames_lines:
                    self._texts.append((text, number, place))
                number += text.count("\n") + 1

    def locate(self, fault: Fault) -> Fault:
        """``fault`` with the candidate's own line and its code, where there is exactly one that it can be."""
        if fault.file != _GENERATED or fault.line is None:
            return fault
        found = {
            place + fault.line - first
            for text, first, place in self._texts
            if first <= fault.line <= first + text.count("\n") and _base(fault.kernel) in text
        }
        if len(found) != 1:
            return fault
        line = found.pop()
        return replace(fault, candidate_line=line, code=self._lines[line - 1].strip()[:_MOST_CODE])


def _base(kernel: str | None) -> str:
    """A kernel's name as it stands in its source."""
    return (kernel or "").partition("<")[0].rpartition("::")[2]


def _argument(call: ast.Call, name: str) -> ast.expr | None:
    given = dict(zip(_POSITIONAL, call.args, strict=False))
    given |= {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg is not None}
    return given.get(name)


def _literal(module: Module, text: str) -> int | None:
    """The line at which the literal ``text`` begins, if each of its lines is one of the source's."""
    places = {
        node.lineno
        for node in module.nodes
        if isinstance(node, ast.Constant)
        and node.value == text
        and (node.end_lineno or 0) - node.lineno == text.count("\n")
    }
    return places.pop() if len(places) == 1 else None
