"""The numbers that a module names at its top level, read and replaced without executing anything. Torch-free.

A *constant* is a name's value in one plain assignment: ``rows = 16`` has ``rows``, and ``height, width = 24, 48`` has
``height`` and ``width``. The elements of a literal tuple or list are constants of their own: ``shape = (3, 240)`` has
``shape[0]`` and ``shape[1]``, and ``sizes = [1024] * 16`` has ``sizes[0]``. Names that are assigned together
(``height = width = 256``) have one constant, with the first one's name.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Final

__all__ = ["constants", "integers", "rewritten"]

_OPERATORS: Final[Mapping[type[ast.operator], Callable[[int, int], int]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
}
_LARGEST: Final = 2**48


def constants(module: ast.Module) -> frozenset[str]:
    """Return the names of all constants, which are those that ``rewritten`` may replace."""
    return frozenset(_places(module))


def integers(module: ast.Module) -> dict[str, int]:
    """Find every constant that is a positive integer, written out or as a product or the like; the last one counts.

    A value that is derived from other names is no constant: it follows them.
    """
    found = {}
    for name, values in _places(module).items():
        value = _folded(values[-1])
        if value is not None and 0 < value <= _LARGEST:
            found[name] = value
    return found


def rewritten(source: str, texts: Mapping[str, str]) -> str:
    """Return ``source`` with each constant of ``texts`` replaced by its text, wherever it is assigned.

    A constant that has that value already stays as it is written. Raises ``LookupError`` with the names that ``source``
    does not assign, and ``SyntaxError``.
    """
    places = _places(ast.parse(source))
    missing = sorted(set(texts) - set(places))
    if missing:
        raise LookupError(", ".join(missing))
    spans = [
        (value, text)
        for name, text in texts.items()
        for value in places[name]
        if (folded := _folded(value)) is None or repr(folded) != text
    ]
    lines = source.encode().splitlines(keepends=True)
    # Last first, so that the positions before a replaced span stay valid. Columns count UTF-8 bytes.
    for value, text in sorted(spans, key=lambda span: (span[0].lineno, span[0].col_offset), reverse=True):
        assert value.end_lineno is not None
        assert value.end_col_offset is not None
        first, last = value.lineno - 1, value.end_lineno - 1
        head, tail = lines[first][: value.col_offset], lines[last][value.end_col_offset :]
        lines[first : last + 1] = [head + text.encode() + tail]
    return b"".join(lines).decode()


def _places(module: ast.Module) -> dict[str, list[ast.expr]]:
    """Return the values that each constant is assigned, in the order of the assignments."""
    places: dict[str, list[ast.expr]] = {}
    for node in module.body:
        if isinstance(node, ast.AnnAssign) and node.value is not None:
            _note(places, node.target, node.value)
        elif isinstance(node, ast.Assign):
            _note(places, node.targets[0], node.value)
    return places


def _note(places: dict[str, list[ast.expr]], target: ast.expr, value: ast.expr) -> None:
    if isinstance(target, ast.Name):
        elements = _elements(value)
        if elements is None:
            places.setdefault(target.id, []).append(value)
        else:
            for number, element in enumerate(elements):
                places.setdefault(f"{target.id}[{number}]", []).append(element)
    elif isinstance(target, ast.Tuple | ast.List):
        elements = _elements(value)
        if elements is not None and len(elements) == len(target.elts):
            for name, element in zip(target.elts, elements, strict=True):
                _note(places, name, element)


def _elements(value: ast.expr) -> list[ast.expr] | None:
    """The elements of a literal tuple or list, also of one that is repeated; ``None`` for everything else."""
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Mult):
        value = value.left
    return value.elts if isinstance(value, ast.Tuple | ast.List) else None


def _folded(value: ast.expr) -> int | None:
    """The value of an expression of nothing but integers; ``None`` for others."""
    if isinstance(value, ast.Constant):
        # A boolean is an int as well, and no size.
        return value.value if type(value.value) is int else None
    if isinstance(value, ast.BinOp) and type(value.op) in _OPERATORS:
        left, right = _folded(value.left), _folded(value.right)
        if left is None or right is None or (isinstance(value.op, ast.FloorDiv) and right == 0):
            return None
        # Bounded at each step, so that no product of products takes long.
        result = _OPERATORS[type(value.op)](left, right)
        return result if abs(result) <= _LARGEST else None
    return None
