"""The targets and values of assignments, in all forms that Python has."""

from __future__ import annotations

import ast
from collections.abc import Iterator

__all__ = ["assignments"]


def assignments(node: ast.AST) -> Iterator[tuple[ast.AST, ast.expr | None]]:
    """Yield each target that ``node`` assigns to, with its value where that is written out."""
    match node:
        case ast.Assign(targets=targets, value=value):
            for target in targets:
                yield from _unpacked(target, value)
        case ast.AnnAssign(target=target, value=value) if value is not None:
            yield target, value
        case ast.NamedExpr(target=target, value=value):
            yield target, value
        case ast.AugAssign(target=target):
            yield target, None
        case ast.For(target=target) | ast.AsyncFor(target=target) | ast.comprehension(target=target):
            yield from _unpacked(target, None)
        case ast.withitem(optional_vars=ast.expr() as target):
            yield from _unpacked(target, None)
        case ast.arg():
            yield node, None


def _unpacked(target: ast.expr, value: ast.expr | None) -> Iterator[tuple[ast.AST, ast.expr | None]]:
    match target, value:
        case ast.Tuple(elts=targets) | ast.List(elts=targets), ast.Tuple(elts=values) | ast.List(elts=values) if len(
            targets
        ) == len(values):
            for one, its_value in zip(targets, values, strict=True):
                yield from _unpacked(one, its_value)
        case ast.Tuple(elts=targets) | ast.List(elts=targets), _:
            for one in targets:
                yield from _unpacked(one, None)
        case ast.Starred(value=inner), _:
            yield inner, None
        case _:
            yield target, value
