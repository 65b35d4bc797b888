"""Candidates: source that defines ``ModelNew``, as given or found in a raw model answer.

Nothing here executes a candidate; it is only parsed.
"""

from __future__ import annotations

import ast
import contextlib
import difflib
import hashlib
import io
import re
import textwrap
import threading
import tokenize
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Literal

from evaluator.candidates.llm_response import Answer, CodeBlock, read_answer
from kerneljudge.terms.limits import MAX_SOURCE_BYTES

__all__ = ["CLASS_NAME", "Candidate", "InvalidSource", "parse_candidate", "parse_quietly"]

CLASS_NAME: Final = "ModelNew"

_REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}"
_DEFINITION: Final = re.compile(rf"^[ \t]*(?:class\s+{CLASS_NAME}\s*[(:]|{CLASS_NAME}\s*=[^=])", re.MULTILINE)
_ENCODING: Final = re.compile(r"(?P<before>[ \t\f]*#.*?coding[:=][ \t]*)(?P<name>[-\w.]+)")
_NO_STATEMENT: Final = re.compile(r"[ \t\f]*(?:#.*)?$")
_LOOKS_LIKE_CODE: Final = re.compile(r"\s*(?:import\s|from\s+\S+\s+import\b|class\s|def\s|@|#|\"\"\"|''')")
_MAX_BLOCKS_FOR_HINTS: Final = 16
_PARSER: Final = threading.Lock()
"""``warnings.catch_warnings`` is not thread-safe."""


@dataclass(frozen=True)
class Candidate:
    """Source that parses and defines ``ModelNew`` at its top level.

    ``digest`` is the SHA-256 of ``source``, which has line feeds only. ``origin``: given as code, or found in an
    answer.
    """

    source: str
    digest: str
    origin: Literal["code", "response"]


@dataclass(frozen=True)
class InvalidSource:
    """The reason why there is nothing to evaluate.

    The lines of ``message`` count in ``source``: the code block in question, else the whole given text. ``source`` is
    at most ``max_bytes`` long and always storable: bytes that are not text have been replaced.
    """

    message: str
    hints: tuple[str, ...]
    source: str


@dataclass(frozen=True)
class _Syntax:
    """The reason why a block is not Python."""

    message: str
    hints: tuple[str, ...] = ()


def parse_candidate(
    *, code: str | None = None, response: str | None = None, max_bytes: int = MAX_SOURCE_BYTES
) -> Candidate | InvalidSource:
    """Find the candidate in ``code`` (source) or in ``response`` (a raw model answer).

    In an answer, reasoning sections are ignored and the last code block that defines ``ModelNew`` wins, even if it has
    a syntax error. An answer without any fence is taken as source, and source within a fence as an answer. Raises
    ``ValueError`` unless exactly one of the two is given.
    """
    if (code is None) == (response is None):
        raise ValueError("give exactly one of code and response")
    origin: Literal["code", "response"] = "code" if response is None else "response"
    text = (code if response is None else response) or ""
    unusable = _unusable(text, max_bytes)
    if unusable:
        return InvalidSource(unusable, (), _storable(text, max_bytes))
    text = text.lstrip("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    if origin == "code" and not text.lstrip().startswith(("```", "~~~")):
        return _from_code(text)
    return _from_answer(text, origin)


def parse_quietly(source: str) -> ast.Module:
    """Return the syntax tree of ``source``, without the warnings of ``ast.parse``. Raises its errors."""
    with _quiet():
        return ast.parse(source)


def _unusable(text: str, max_bytes: int) -> str:
    if not text.strip("\ufeff \t\r\n\f\v"):
        return "there is no source: what was given is empty"
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        line = text.count("\n", 0, error.start) + 1
        return f"line {line}: character U+{ord(text[error.start]):04X} is half of a surrogate pair, which is not text"
    if size > max_bytes:
        return f"too large: {size:,} bytes, and at most {max_bytes:,} are read"
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        return f"line {line}: a NUL character, which is not valid in Python source"
    return ""


def _storable(text: str, max_bytes: int) -> str:
    replaced = text[:max_bytes].replace("\0", _REPLACEMENT)
    encoded = re.sub("[\ud800-\udfff]", _REPLACEMENT, replaced).encode()
    return encoded[:max_bytes].decode(errors="ignore")


def _from_code(text: str) -> Candidate | InvalidSource:
    text = _as_unicode(text)
    module = _parse(text)
    if isinstance(module, _Syntax):
        return InvalidSource(module.message, module.hints, text)
    if _defines(module):
        return _candidate(text, "code")
    return InvalidSource(f"the source does not define {CLASS_NAME}", tuple(_hints([module], "the source")), text)


def _from_answer(text: str, origin: Literal["code", "response"]) -> Candidate | InvalidSource:
    answer = read_answer(text)
    others: list[CodeBlock] = []
    for block in (*reversed(answer.blocks), _lead(answer)):
        if CLASS_NAME not in block.text:
            others.append(block)
            continue
        source = _as_unicode(_at_left_margin(block.text))
        module = _parse(source)
        if isinstance(module, ast.Module):
            if _defines(module):
                return _candidate(source, origin)
            others.append(block)
        elif block.may_be_python and _DEFINITION.search(source):
            cut = () if block.closed else ("the code block is never closed: the answer may have been cut off",)
            return InvalidSource(module.message, (*module.hints, *cut), source)
    parsed = (_parse(_at_left_margin(block.text)) for block in others[:_MAX_BLOCKS_FOR_HINTS])
    return InvalidSource(*_not_found(answer, [module for module in parsed if isinstance(module, ast.Module)]), text)


def _as_unicode(source: str) -> str:
    """Declare UTF-8 in the place of another encoding that ``source`` declares.

    It is text already, and will be read back from a file in UTF-8.
    """
    lines = source.split("\n", 2)
    for number, line in enumerate(lines[:2]):
        declared = _ENCODING.match(line)
        if declared is not None:
            lines[number] = f"{declared['before']}utf-8{line[declared.end() :]}"
            return "\n".join(lines)
        if not _NO_STATEMENT.match(line):
            break
    return source


def _lead(answer: Answer) -> CodeBlock:
    """Return the text before the first fence as a block. Prose may mention the class, so only code counts as code."""
    looks_like_code = _LOOKS_LIKE_CODE.match(answer.lead)
    return CodeBlock(answer.lead, "python" if looks_like_code else "text", closed=True)


def _at_left_margin(text: str) -> str:
    """Move a block that is indented as a whole to the left; leave any other as it is."""
    return textwrap.dedent(text) if text.lstrip("\n")[:1] in (" ", "\t") else text


def _not_found(answer: Answer, modules: list[ast.Module]) -> tuple[str, tuple[str, ...]]:
    count = len(answer.blocks)
    if not count:
        message = f"the answer has no code block, and is not itself source that defines {CLASS_NAME}"
    elif count == 1:
        message = f"the answer's code block does not define {CLASS_NAME}"
    else:
        message = f"none of the answer's {count} code blocks defines {CLASS_NAME}"
    hints = list(_hints(modules, "the answer"))
    if answer.reasoning_open:
        hints.append("the answer ends within its reasoning section, which is not read: it may have been cut off")
    elif _DEFINITION.search(answer.reasoning):
        hints.append(f"{CLASS_NAME} is defined within the reasoning section only, which is not read")
    return message, tuple(hints)


def _candidate(source: str, origin: Literal["code", "response"]) -> Candidate:
    return Candidate(source, hashlib.sha256(source.encode()).hexdigest(), origin)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    with _PARSER, warnings.catch_warnings():
        # A mere warning of Python's decides nothing.
        warnings.simplefilter("ignore")
        yield


def _parse(source: str) -> ast.Module | _Syntax:
    """Parse and compile, as importing the file would."""
    try:
        module = parse_quietly(source)
        with _quiet():
            # Finds errors that the grammar alone does not, such as a return outside of a function.
            compile(source, "candidate.py", "exec", dont_inherit=True)
        # The file will be read back as bytes, where an encoding declaration counts.
        tokenize.detect_encoding(io.BytesIO(source.encode()).readline)
        return module
    except SyntaxError as error:
        return _Syntax(_located(error, source), _reading(error, source))
    except (RecursionError, MemoryError):
        return _Syntax("the source is nested too deeply for Python to compile")
    except (ValueError, OverflowError) as error:
        return _Syntax(f"Python cannot compile the source: {error}")


def _located(error: SyntaxError, source: str) -> str:
    text = error.msg.strip() or "invalid syntax"
    if not error.lineno:
        return text
    # Python counts one line more where it misses something at the very end.
    line = min(error.lineno, source.count("\n") + 1)
    return f"line {line}, column {max(error.offset or 1, 1)}: {text}"


def _reading(error: SyntaxError, source: str) -> tuple[str, ...]:
    lines = source.split("\n")
    if not error.lineno or error.lineno > len(lines) or not lines[error.lineno - 1].strip():
        return ()
    return (f"line {error.lineno} reads: {lines[error.lineno - 1].strip()[:200]}",)


def _defines(module: ast.Module) -> bool:
    return any(name == CLASS_NAME for name in _bound_names(module.body))


def _bound_names(body: Iterable[ast.stmt]) -> Iterator[str]:
    """Yield names that a module may bind to a class: by classes, assignments and imports, conditional ones too."""
    # A stack of our own: a chain of elif nests deeper than Python's.
    waiting = list(body)
    while waiting:
        statement = waiting.pop()
        match statement:
            case ast.ClassDef():
                yield statement.name
            case ast.Assign(targets=targets):
                yield from _target_names(targets)
            case ast.AnnAssign(target=target, value=ast.expr()):
                yield from _target_names([target])
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                yield from (alias.asname or alias.name for alias in names)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                continue
            case _:
                waiting.extend(_inner_statements(statement))


def _inner_statements(statement: ast.stmt) -> Iterator[ast.stmt]:
    """The statements within ``if``, ``try``, ``with``, ``for``, ``while`` and ``match``, one level down."""
    for child in ast.iter_child_nodes(statement):
        if isinstance(child, ast.stmt):
            yield child
        elif isinstance(child, ast.ExceptHandler | ast.match_case):
            yield from child.body


def _target_names(targets: Iterable[ast.expr]) -> Iterator[str]:
    for target in targets:
        if isinstance(target, ast.Name):
            yield target.id
        elif isinstance(target, ast.Tuple | ast.List):
            yield from _target_names(target.elts)


def _hints(modules: Iterable[ast.Module], what: str) -> Iterator[str]:
    """Suggest intended names, from the blocks that do parse."""
    parsed = list(modules)
    names = {name for module in parsed for name in _bound_names(module.body)}
    if "Model" in names:
        yield f"{what} defines Model but not {CLASS_NAME}: name the rewritten class {CLASS_NAME}"
        return
    near = difflib.get_close_matches(CLASS_NAME.lower(), [name.lower() for name in names], n=1, cutoff=0.7)
    for name in sorted(names):
        if name.lower() in near or name == "NewModel":
            yield f"{what} defines {name}: name the class {CLASS_NAME}"
    definitions = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for module in parsed:
        for node in ast.walk(module):
            if isinstance(node, definitions) and node.name == CLASS_NAME:
                kind = "a class within another block" if isinstance(node, ast.ClassDef) else "a function"
                yield f"{CLASS_NAME} is {kind} at line {node.lineno}: define it as a class at the top level"
