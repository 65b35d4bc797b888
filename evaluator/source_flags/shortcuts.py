"""Ways to an answer that do not compute it: the reference's own forward, and results kept by address."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from evaluator.candidates.candidate import CLASS_NAME
from evaluator.flags import Flag, FlagKind
from evaluator.source_flags.module import Function, Module

__all__ = ["flags"]

_REFERENCE: Final = "model.Model"
"""The problem's own reference, by the name under which candidates can import it."""
_CALLS_FORWARD: Final = frozenset({"forward", "__call__", "_call_impl"})
_MEMOISERS: Final = ("functools.cache", "functools.lru_cache")
_LOOK_UPS: Final = frozenset({"get", "setdefault", "pop", "__getitem__", "__contains__"})


def flags(module: Module) -> Iterator[Flag]:
    """Yield the flags ``inherits_reference`` and ``caches_outputs``."""
    yield from _inherited(module)
    yield from _cached(module)


def _inherited(module: Module) -> Iterator[Flag]:
    classes = module.classes()
    node, seen = classes.get(CLASS_NAME), set[str]()
    if node is None:
        for alias in module.tree.body:
            match alias:
                case ast.Assign(targets=[ast.Name(id=name)], value=value) if name == CLASS_NAME:
                    if module.dotted(value) == _REFERENCE:
                        message = f"{CLASS_NAME} is the reference itself, under another name"
                        yield Flag(FlagKind.INHERITS_REFERENCE, alias.lineno, message)
        return
    line = node.lineno
    while node is not None and node.name not in seen:
        seen.add(node.name)
        if any(_defines_forward(statement) for statement in node.body):
            return
        # With several bases, another than the reference may have the forward.
        if len(node.bases) != 1:
            return
        if module.dotted(node.bases[0]) == _REFERENCE:
            yield Flag(FlagKind.INHERITS_REFERENCE, line, f"{CLASS_NAME} has the forward of the reference's Model")
            return
        node = classes.get(node.bases[0].id) if isinstance(node.bases[0], ast.Name) else None


def _defines_forward(statement: ast.stmt) -> bool:
    """Whether a statement of a class gives it a forward that does more than call the one above it."""
    match statement:
        case ast.FunctionDef(name=name, body=body):
            return name in _CALLS_FORWARD and not _only_hands_on(body)
        case ast.Assign(targets=targets):
            return any(isinstance(target, ast.Name) and target.id in _CALLS_FORWARD for target in targets)
        case ast.If() | ast.Try() | ast.With() | ast.For() | ast.While() | ast.AsyncFunctionDef():
            # An unknown value, which is not followed further.
            return True
    return False


def _only_hands_on(body: list[ast.stmt]) -> bool:
    rest = [statement for statement in body if not _is_text(statement)]
    match rest:
        case [ast.Return(value=ast.Call(func=ast.Attribute(value=ast.Call(func=ast.Name(id="super")), attr=name)))]:
            return name in _CALLS_FORWARD
    return False


def _is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _cached(module: Module) -> Iterator[Flag]:
    told: set[Function] = set()
    for node in module.nodes:
        if isinstance(node, Function) and node.name == "forward":
            decorators = [item.func if isinstance(item, ast.Call) else item for item in node.decorator_list]
            if any(module.dotted(decorator) in _MEMOISERS for decorator in decorators):
                message = "forward remembers its results by the identity of its arguments"
                yield Flag(FlagKind.CACHES_OUTPUTS, node.lineno, message)
        elif isinstance(node, ast.expr) and any(_is_address(module, key) for key in _keys(node)):
            # Looked up, kept and returned: one thing in several lines.
            function = next(module.functions_around(node))
            if function in told:
                continue
            told.add(function)
            message = "something is kept by the address of an argument, which a later argument may have as well"
            yield Flag(FlagKind.CACHES_OUTPUTS, node.lineno, message)


def _keys(node: ast.expr) -> Iterator[ast.expr]:
    """Yield the keys by which ``node`` looks something up, or which it compares with a kept value."""
    match node:
        case ast.Subscript(slice=key):
            yield key
        case ast.Call(func=ast.Attribute(attr=name), args=[key, *_]) if name in _LOOK_UPS:
            yield key
        case ast.Compare(left=left, ops=[ast.In() | ast.NotIn()]):
            yield left
        case ast.Compare(left=left, ops=[ast.Eq() | ast.NotEq() | ast.Is() | ast.IsNot()], comparators=[right]):
            # Only with an attribute: two arguments may be compared with each other.
            if _is_kept(right):
                yield left
            if _is_kept(left):
                yield right


def _is_kept(node: ast.expr) -> bool:
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)


def _is_address(module: Module, key: ast.expr) -> bool:
    """Whether ``key`` is, or has in it, ``id(x)`` or ``x.data_ptr()`` of an argument ``x``."""
    if isinstance(key, ast.Name):
        value = module.value_of(key)
        if value is None:
            return False
        key = value
    parts = key.elts if isinstance(key, ast.Tuple) else [key]
    for part in parts:
        match part:
            case ast.Call(func=ast.Attribute(value=ast.Name() as given, attr="data_ptr"), args=[]):
                if module.is_parameter(given):
                    return True
            case ast.Call(func=ast.Name() as function, args=[ast.Name() as given]):
                if module.dotted(function) == "builtins.id" and module.is_parameter(given):
                    return True
    return False
