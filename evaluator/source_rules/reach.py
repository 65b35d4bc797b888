"""The part of a module that an import and a use of the candidate's class can reach, by names alone."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from evaluator.source_flags.module import Function, Module

__all__ = ["unreached"]


def unreached(module: Module, root: str | None, kernels: frozenset[ast.AST]) -> set[ast.AST]:
    """Return the functions and classes at the top level that nothing reached mentions, and the block for a program.

    ``root`` is the class that is reached in any case. ``kernels``: functions whose decorators call nothing here.
    """
    waiting: list[ast.AST] = []
    waiting_by_name: dict[str, list[ast.AST]] = {}
    left_out: set[ast.AST] = set()
    renamed = any(isinstance(node, ast.Name) and node.id == "__name__" and _is_stored(node) for node in module.nodes)
    for node in module.nodes:
        if isinstance(node, ast.If) and _is_for_programs(node.test) and not renamed:
            left_out.update(node.body)
    for node in _tops(module.tree.body, left_out):
        plain = isinstance(node, Function | ast.ClassDef) and (not node.decorator_list or node in kernels)
        if plain and isinstance(node, Function | ast.ClassDef) and root not in (None, node.name):
            waiting_by_name.setdefault(node.name, []).append(node)
        else:
            waiting.append(node)
    while waiting:
        for inner in ast.walk(waiting.pop()):
            for name in _mentioned(inner):
                waiting.extend(waiting_by_name.pop(name, []))
    return left_out.union(*waiting_by_name.values())


def _tops(body: list[ast.stmt], left_out: set[ast.AST]) -> Iterator[ast.AST]:
    """The statements at the top level; of ``if`` and ``try`` there, each of the inner ones."""
    for statement in body:
        if statement in left_out:
            continue
        if isinstance(statement, ast.If | ast.Try | ast.With):
            for name, value in ast.iter_fields(statement):
                if name in ("body", "orelse", "finalbody"):
                    yield from _tops(value, left_out)
                elif isinstance(value, list):
                    yield from value
                elif isinstance(value, ast.AST):
                    yield value
        else:
            yield statement


def _is_for_programs(test: ast.expr) -> bool:
    match test:
        case ast.Compare(left=ast.Name(id="__name__"), ops=[ast.Eq()], comparators=[ast.Constant(value="__main__")]):
            return True
    return False


def _is_stored(name: ast.Name) -> bool:
    return isinstance(name.ctx, ast.Store)


def _mentioned(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            yield name
        # It may be looked up by its name.
        case ast.Constant(value=str(name)) if name.isidentifier():
            yield name
