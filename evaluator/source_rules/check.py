"""The check of a candidate's source against the rules that apply to it. Torch-free; nothing is executed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from evaluator.candidates.candidate import parse_quietly
from evaluator.source_flags import precision
from evaluator.source_flags.extensions import find_extensions
from evaluator.source_flags.module import Module, TooMuchToRead
from evaluator.source_rules.cxx_operators import CxxText, cxx_texts, hidden_in_cxx, operators_in_cxx
from evaluator.source_rules.hiding import computed_names, made_code
from evaluator.source_rules.languages import kernel_languages
from evaluator.source_rules.operators import ReferenceTooLarge, operator_calls
from evaluator.source_rules.program import Program
from kerneljudge.terms.limits import MAX_SOURCE_BYTES
from kerneljudge.terms.rules import Rules

__all__ = ["FILE", "MAX_BREAKS", "Break", "find_breaks"]

FILE: Final = "candidate.py"
"""The name of a candidate's source, as in its tracebacks."""
MAX_BREAKS: Final = 20
"""A reader does not read more than this, and each is stored."""


@dataclass(frozen=True, order=True)
class Break:
    """One break of ``rule``, a field of ``Rules``. ``line`` counts from 1 in ``file``."""

    line: int
    rule: str
    message: str
    file: str = FILE

    def __str__(self) -> str:
        return f"{self.rule}: {self.file}, line {self.line}: {self.message}"

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON-ready data."""
        return asdict(self)


def find_breaks(
    source: str, rules: Rules, *, least_precision: str, reference: str | None, tf32: bool = True
) -> list[Break]:
    """Return where ``source``, which parses, breaks ``rules``: by line, ``MAX_BREAKS`` at the most.

    ``least_precision``: the lowest that the problem expects a candidate to compute in. ``reference``: the source of its
    reference. ``tf32``: whether its convolutions may round to TF32. A source that cannot be read breaks every rule.
    """
    if not rules:
        return []
    try:
        if len(source) > MAX_SOURCE_BYTES:
            raise TooMuchToRead
        module = Module(parse_quietly(source))
        found = set(_breaks(module, rules, least_precision, reference, tf32=tf32))
    except (TooMuchToRead, RecursionError, MemoryError):
        found = {Break(1, rule, "cannot be read: it is more than anybody could read") for rule in rules.to_dict()}
    return sorted(found)[:MAX_BREAKS]


def _breaks(
    module: Module, rules: Rules, least_precision: str, reference: str | None, *, tf32: bool
) -> Iterator[Break]:
    extensions = find_extensions(module)
    program = Program(module)
    for line, words in made_code(program):
        yield from (Break(line, rule, f"cannot be read: {words}") for rule in rules.to_dict())
    if rules.languages:
        for language, line, words in kernel_languages(module, extensions):
            if language not in rules.languages:
                yield Break(line, "languages", f"{words}; allowed: {', '.join(rules.languages)}")
    if rules.no_lower_precision:
        for flag in precision.flags(module, extensions, least_precision, tf32=tf32):
            yield Break(flag.line or 1, "no_lower_precision", flag.message)
    if rules.forbidden_operators:
        texts = cxx_texts(module, extensions)
        yield from _of_operators(program, texts, frozenset(rules.forbidden_operators), reference)


def _of_operators(
    program: Program, texts: Sequence[CxxText], forbidden: frozenset[str], reference: str | None
) -> Iterator[Break]:
    calls = [*operators_in_cxx(texts)]
    try:
        calls += operator_calls(program, reference)
    except ReferenceTooLarge:
        words = "cannot be read: it uses the problem's reference, which is more than anybody could read"
        yield Break(1, "forbidden_operators", words)
    for line, call, operators in calls:
        if met := sorted(operators & forbidden):
            yield Break(line, "forbidden_operators", f"{call} calls {', '.join(met)}")
    for line, words in (*computed_names(program), *hidden_in_cxx(texts)):
        yield Break(line, "forbidden_operators", f"cannot be read: {words}")
