"""Problems in KernelBench's form: ``Model``, ``get_inputs`` and ``get_init_inputs`` in one file. None is executed."""

from __future__ import annotations

import ast
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from evaluator.candidates.candidate import parse_quietly
from kerneljudge.terms.limits import MAX_SOURCE_BYTES

__all__ = ["Published", "Unusable", "parse_published"]

_NEEDED: Final = ("Model", "get_inputs", "get_init_inputs")
_FRESH: Final = {"rand", "randn", "randint", "ones", "zeros"}
_KEPT: Final = {"bool", "long", "int", "float", "unsqueeze", "reshape", "view"}


class Unusable(ValueError):
    """The reason why a source cannot be a problem."""


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


def parse_published(source: str, title: str) -> Published:
    """Return the facts about a problem's source. Raises ``Unusable``."""
    size = len(source.encode("utf-8", "surrogatepass"))
    if size > MAX_SOURCE_BYTES:
        raise Unusable(f"it has {size:,} bytes, and at most {MAX_SOURCE_BYTES:,} are read")
    try:
        module = parse_quietly(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise Unusable(f"it does not parse: {error}") from error
    defined = {node.name: node for node in module.body if isinstance(node, ast.ClassDef | ast.FunctionDef)}
    missing = [name for name in _NEEDED if name not in defined]
    if missing:
        raise Unusable(f"it does not define {', '.join(missing)}")
    return Published(
        source=source,
        module=module,
        title=title,
        description=_first_paragraph(defined["Model"]),
        drawn=_draws_alone(defined["get_inputs"]),
    )


def _first_paragraph(model: ast.ClassDef | ast.FunctionDef) -> str:
    text = (ast.get_docstring(model) or "").partition("\n\n")[0]
    return " ".join(text.split())


def _draws_alone(inputs: ast.ClassDef | ast.FunctionDef) -> bool:
    try:
        return isinstance(inputs, ast.FunctionDef) and _as_drawn(inputs)
    except RecursionError:
        return False  # a product of a thousand factors


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
