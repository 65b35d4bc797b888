"""What a candidate can have us read takes time in proportion to its length, and raises nothing: a megabyte at once."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any, Final

import pytest

from evaluator.builder.builder import _last_object, _storable, _texts
from evaluator.builder.diagnostics import first_error, foreign_header_missing
from evaluator.builder.recipes.split.lexer import tokens_of
from evaluator.builder.recipes.split.recipe import _LATER, _UNRESOLVED
from evaluator.builder.recipes.split.refused import Refused
from evaluator.builder.request import BuildRequest
from evaluator.builder.resources import ResourceReader, short_name
from evaluator.candidates.candidate import parse_candidate
from evaluator.candidates.llm_response import read_answer
from evaluator.diagnosis.counters import parse_counters
from evaluator.diagnosis.counters import tool_error as counters_error
from evaluator.diagnosis.sanitizer import parse_faults
from evaluator.diagnosis.sanitizer import tool_error as sanitizer_error
from evaluator.diagnosis.session import _object
from evaluator.diagnosis.source_map import SourceMap
from evaluator.feedback.feedback import _FIGURE
from evaluator.problems.importing.examine import _report as examined
from evaluator.source_flags.cxx import bound_functions, code_of, redefined_runtime_functions, unlaunched_kernels

_BYTES: Final = 2**20
_LIMIT_S: Final = 20.0
"""Ten times what the slowest takes on a busy machine; what was quadratic took from minutes to days."""


def _tokens(text: str) -> None:
    with contextlib.suppress(Refused):
        tokens_of(text)


def _resources(text: str) -> None:
    reader = ResourceReader()
    for line in text.splitlines():
        reader.take(line)


def _advice(text: str) -> None:
    code = code_of(text)
    unlaunched_kernels(code)
    redefined_runtime_functions(code)
    bound_functions(text)


def _diagnosis(text: str) -> None:
    parse_faults(text)
    sanitizer_error(text)
    counters_error(text)
    parse_counters(text)


def _log(text: str) -> None:
    error = first_error(text, "/build")
    assert error is None or len(error) < 20_000
    foreign_header_missing(text, "/build")


_READERS: Final[dict[str, Callable[[str], Any]]] = {
    "a compiler's log": _log,
    "resources of kernels": _resources,
    "warnings of later standards": _LATER.findall,
    "unresolved symbols": _UNRESOLVED.findall,
    "tokens of C++": _tokens,
    "line directives": lambda text: BuildRequest("x", cpp_sources=(text,)).renames_lines,
    "the shared name": lambda text: BuildRequest("x", cpp_sources=(text,)).shared,
    "advice about C++": _advice,
    "an answer": read_answer,
    "a candidate's answer": lambda text: parse_candidate(response=text),
    "a candidate's source": lambda text: parse_candidate(code=text),
    "a tool's report": _diagnosis,
    "lines that a message names": lambda text: SourceMap("").named_by(text),
    "figures in a message": _FIGURE.findall,
    "a kernel's name": short_name,
    "a recipe's report": _last_object,
    "a target's outcome": _object,
    "an examination": lambda text: examined(f"mark{text}", "mark"),
}

_BEGINNINGS: Final = (
    "", "main.cpp:1:2: error: ", "/usr/include/a.h:1:2: fatal error: ", "cuda.cu(1): error: ", "```", "```python\n",
    "ptxas info    : Used 1 registers, ", "========= ", "=========     at ", '"Kernel Name","', "#", "from ", "<think",
)  # fmt: skip
_UNITS: Final = (
    "a", "1", " ", "\t", "\n", "#", "(", "[", "{", '"', "'", "`", "\\", "/", "*", ":", ".", "-", "<", "\\\n", "a.",
    "a:", "a ", "1+", "/*", "//", 'R"(', "at ", "warning: ", "undefined reference to ", "__device_stub__",
    "```\n\'\'\'\n", "```x\n# \'\'\'\n\'\'\'\n", "<think>\n", "</think>\n", "int ", "__global__ void ", "__global__(",
    "PYBIND11_MODULE(", "PYBIND11_MODULE ", "m.def(", '{"a":', "Error: ", "` ", "==ERROR==", "> ", "- ", "> - ",
)  # fmt: skip


@pytest.mark.parametrize("reader", _READERS.values(), ids=_READERS)
def test_a_megabyte_is_read_in_seconds_whatever_it_repeats(reader: Callable[[str], Any]) -> None:
    slow: dict[str, float] = {}
    for beginning in _BEGINNINGS:
        for unit in _UNITS:
            # Quadratic time shows at a hundredth of the length already, and all pairs can be tried.
            begin = time.process_time()
            reader(beginning + unit * (_BYTES // 100 // len(unit)))
            seconds = time.process_time() - begin
            if seconds > _LIMIT_S / 200:
                slow[beginning + unit] = seconds
    for text in slow:
        begin = time.process_time()
        unit = next(unit for unit in reversed(_UNITS) if text.endswith(unit) and text.removesuffix(unit) in _BEGINNINGS)
        reader(text.removesuffix(unit) + unit * (_BYTES // len(unit)))
        assert time.process_time() - begin < _LIMIT_S, text


def test_a_long_error_is_told_in_a_short_line() -> None:
    message = first_error(f"main.cpp:3:2: error: #error {'a' * 240_000}", "/b")
    assert message is not None
    assert message.startswith("main.cpp:3: #error aaa")
    assert len(message) <= 2000


@pytest.mark.parametrize(
    "report",
    [
        '{"outcome":' + "[" * 100_000,
        '{"outcome":' * 100_000,
        '{"outcome": ' + "1" * 100_000 + "}",
        '{"outcome": "built", "kernels": 5}',
        '{"kernels": ["\\ud800"], "message": "\\ud800"}',
        "[]",
        "",
    ],
    ids=["lists", "objects", "digits", "number", "surrogates", "list", "nothing"],
)
def test_a_report_that_a_candidate_has_made_up_raises_nothing_in_the_builder(report: str) -> None:
    found = _last_object(report)
    texts = (*_texts(found.get("kernels")), _storable(str(found.get("message"))))
    assert all(text.encode().decode() == text for text in texts)
