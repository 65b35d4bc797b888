"""Finding the problems of a KernelBench checkout, and reading the facts about each. Nothing is executed."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from evaluator.candidates.candidate import MAX_BYTES, parse_quietly
from evaluator.errors import ProblemError
from evaluator.problems.problem import KernelBenchIdentity

__all__ = ["LEVELS", "Published", "Unusable", "find_files", "identify", "read_published"]

LEVELS: Final = (1, 2, 3, 4)

_FILE: Final = re.compile(r"(\d+)_(.+)")
_NEEDED: Final = ("Model", "get_inputs", "get_init_inputs")
_ID_CHARACTERS: Final = 100
_FRESH: Final = {"rand", "randn", "randint", "ones", "zeros"}
_KEPT: Final = {"bool", "long", "int", "float", "unsqueeze", "reshape", "view"}


class Unusable(ValueError):
    """The reason why a file cannot be a problem."""


@dataclass(frozen=True)
class Published:
    """One problem as it is published.

    ``drawn``: its floating-point inputs are unchanged random numbers, so that any others are as fair.
    """

    source: str
    module: ast.Module
    title: str
    description: str
    drawn: bool


def find_files(folder: Path, levels: Collection[int] = LEVELS) -> list[Path]:
    """Find ``<number>_<name>.py`` of each level, in the order of their numbers.

    ``folder``: a checkout, or its folder ``KernelBench``. Raises ``ProblemError`` where there is none.
    """
    for root in (folder / "KernelBench", folder):
        found = [
            path
            for level in sorted(levels)
            for path in sorted((root / f"level{level}").glob("*.py"), key=_number)
            if _FILE.fullmatch(path.stem)
        ]
        if found:
            return found
    wanted = ", ".join(f"level{level}" for level in sorted(levels))
    raise ProblemError(f"no KernelBench problem in {folder}: looked for KernelBench/{{{wanted}}}/<number>_<name>.py")


def identify(path: Path) -> tuple[str, KernelBenchIdentity]:
    """Return the id of the file's problem here, and its identity in KernelBench."""
    level = int(path.parent.name.removeprefix("level"))
    found = _FILE.fullmatch(path.stem)
    assert found is not None
    number = int(found[1])
    slug = re.sub(r"[^a-z0-9]+", "_", found[2].lower()).strip("_")
    problem_id = f"kernelbench_{level}_{number:03d}_{slug}"[:_ID_CHARACTERS].rstrip("_")
    return problem_id, KernelBenchIdentity(level, number, path.stem)


def read_published(path: Path) -> Published:
    """Read the problem in ``path``. Raises ``Unusable``."""
    try:
        data = path.read_bytes()
        source = data.decode().replace("\r\n", "\n")
    except OSError as error:
        raise Unusable(f"it cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise Unusable(f"it is not UTF-8 text: {error.reason} at byte {error.start}") from error
    if len(data) > MAX_BYTES:
        raise Unusable(f"it has {len(data):,} bytes, and at most {MAX_BYTES:,} are read")
    try:
        module = parse_quietly(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise Unusable(f"it does not parse: {error}") from error
    defined = {node.name: node for node in module.body if isinstance(node, ast.ClassDef | ast.FunctionDef)}
    missing = [name for name in _NEEDED if name not in defined]
    if missing:
        raise Unusable(f"it does not define {', '.join(missing)}")
    inputs = defined["get_inputs"]
    return Published(
        source=source,
        module=module,
        title=" ".join(path.stem.partition("_")[2].replace("_", " ").split()),
        description=_first_paragraph(defined["Model"]),
        drawn=isinstance(inputs, ast.FunctionDef) and _as_drawn(inputs),
    )


def _number(path: Path) -> tuple[int, str]:
    digits = path.stem.partition("_")[0]
    return (int(digits) if digits.isdecimal() else 0), path.name


def _first_paragraph(model: ast.ClassDef | ast.FunctionDef) -> str:
    text = (ast.get_docstring(model) or "").partition("\n\n")[0]
    return " ".join(text.split())


def _as_drawn(function: ast.FunctionDef) -> bool:
    """Whether ``get_inputs`` does nothing but draw, scale and return.

    A candidate may rely on other inputs: a matrix that is made symmetric, targets of plus and minus one, probabilities.
    """
    drawn: set[str] = set()
    for statement in function.body:
        match statement:
            case ast.Expr(value=ast.Constant()):
                continue
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if name not in drawn and _is_drawn(value, drawn):
                drawn.add(name)
            case ast.Return(value=ast.List(elts=values) | ast.Tuple(elts=values)):
                return all(_is_drawn(value, drawn) for value in values)
            case _:
                return False
    return False


def _is_drawn(value: ast.expr, names: Collection[str]) -> bool:
    match value:
        case ast.Constant():
            return True
        case ast.Name(id=name):
            return name in names
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            return _is_drawn(left, names) and _is_drawn(right, names)
        case ast.Call(func=ast.Attribute(value=ast.Name(id="torch"), attr=attr)):
            return attr in _FRESH
        case ast.Call(func=ast.Attribute(value=inner, attr=attr)):
            return attr in _KEPT and _is_drawn(inner, names)
        case _:
            return False
