"""Exception handlers that silently replace a failing kernel by the library's answer."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Final

from evaluator.flags import Flag, FlagKind
from evaluator.source_flags.extensions import builds_extension
from evaluator.source_flags.module import Module

__all__ = ["flags"]

_ORDINARY: Final = frozenset(
    f"builtins.{name}"
    for name in ("ImportError", "ModuleNotFoundError", "KeyError", "IndexError", "LookupError", "AttributeError")
)
"""Exceptions that guards of imports, look-ups in caches and tests for features catch."""
_ANSWERS: Final = frozenset({"forward", "backward", "__call__"})
_NO_COMPUTING: Final = (
    "torch.cuda.", "torch.cpu.", "torch.backends.", "torch.version.", "torch.utils.", "torch.jit.", "torch.autograd.",
    "torch.device", "torch.empty", "torch.compile", "torch.no_grad", "torch.enable_grad", "torch.is_", "torch.get_",
    "torch.set_", "torch.finfo", "torch.iinfo", "torch.manual_seed", "torch._",
)  # fmt: skip
_ELSEWHERE: Final = "where this raises, the answer is computed in another way"
_MAX_BLOCKS: Final = 200
"""The most blocks that are examined; no author writes more."""
_MAX_WITHIN: Final = 2000
_LEAVES: Final = (ast.Return, ast.Raise, ast.Continue, ast.Break)


def flags(module: Module) -> Iterator[Flag]:
    """Yield the flags ``exception_fallback``."""
    builders = _functions_that_build(module)
    blocks = (node for node in module.nodes if isinstance(node, ast.Try | ast.TryStar | ast.With))
    for node in islice(blocks, _MAX_BLOCKS):
        if not isinstance(node, ast.With):
            handlers = [handler for handler in node.handlers if not _is_ordinary(module, handler.type)]
            yield from _swallowed_build(module, node, handlers, builders)
            yield from (flag for handler in handlers for flag in _fallback(module, node, handler))
        elif _suppresses(module, node) and _later(module, node, node.body, []):
            yield Flag(FlagKind.EXCEPTION_FALLBACK, node.lineno, _ELSEWHERE)


def _is_ordinary(module: Module, caught: ast.expr | None) -> bool:
    types = caught.elts if isinstance(caught, ast.Tuple) else [caught]
    return all(each is not None and module.dotted(each) in _ORDINARY for each in types)


def _suppresses(module: Module, node: ast.With) -> bool:
    for item in node.items:
        match item.context_expr:
            case ast.Call(func=function, args=[*types]) if module.dotted(function) == "contextlib.suppress":
                return not all(_is_ordinary(module, each) for each in types)
    return False


def _functions_that_build(module: Module) -> frozenset[str]:
    """Names of functions in which an extension is built."""
    return frozenset(
        function.name
        for node in module.nodes
        if isinstance(node, ast.Call) and builds_extension(module, node)
        for function in module.functions_around(node)
    )


def _swallowed_build(
    module: Module, node: ast.Try | ast.TryStar, handlers: Sequence[ast.ExceptHandler], builders: frozenset[str]
) -> Iterator[Flag]:
    calls = [inner for inner in _within(node.body) if isinstance(inner, ast.Call)]
    builds = any(
        builds_extension(module, call) or (isinstance(call.func, ast.Name) and call.func.id in builders)
        for call in calls
    )
    for handler in handlers:
        if builds and not any(isinstance(inner, ast.Raise) or _ends(module, inner) for inner in _within(handler.body)):
            message = "a failure to build the extension is caught, and the module goes on without it"
            yield Flag(FlagKind.EXCEPTION_FALLBACK, handler.lineno, message)


def _ends(module: Module, node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and module.dotted(node.func) in ("sys.exit", "os._exit", "builtins.exit")


def _fallback(module: Module, node: ast.Try | ast.TryStar, handler: ast.ExceptHandler) -> Iterator[Flag]:
    if not any(module.functions_around(node)) or _always_raises(handler.body):
        return
    answers = any(function.name in _ANSWERS for function in module.functions_around(node))
    if _computes(module, handler.body) or (answers and _returns_something(handler.body)):
        yield Flag(FlagKind.EXCEPTION_FALLBACK, handler.lineno, _ELSEWHERE)
        return
    goes_on = not any(isinstance(inner, _LEAVES) for inner in _within(handler.body))
    if goes_on and _later(module, node, node.body, handler.body):
        yield Flag(FlagKind.EXCEPTION_FALLBACK, handler.lineno, _ELSEWHERE)


def _always_raises(body: Sequence[ast.stmt]) -> bool:
    match body[-1]:
        case ast.Raise():
            return True
        case ast.If(body=[*first], orelse=[*second]) if second:
            return _always_raises(first) and _always_raises(second)
    return False


def _computes(module: Module, body: Iterable[ast.AST]) -> bool:
    """Whether a value is computed with torch: an operator, a matrix product, the forward of a superclass."""
    for node in _within(body):
        match node:
            case ast.BinOp(op=ast.MatMult()):
                return True
            case ast.Call(func=ast.Attribute(value=ast.Call(func=ast.Name(id="super")), attr="forward")):
                return True
            case ast.Call(func=function):
                path = module.dotted(function) or ""
                # Modules and exceptions, classes with a capital, are made and not computed with.
                makes = path.rpartition(".")[2][:1].isupper()
                if path.startswith("torch.") and not path.startswith(_NO_COMPUTING) and not makes:
                    return True
    return False


def _returns_something(body: Iterable[ast.AST]) -> bool:
    return any(
        isinstance(node, ast.Return) and isinstance(node.value, ast.Call | ast.BinOp | ast.IfExp)
        for node in _within(body)
    )


def _later(module: Module, node: ast.stmt, tried: Sequence[ast.stmt], handled: Sequence[ast.stmt]) -> bool:
    """Whether an answer is computed after ``node`` where the ``tried`` statements failed without a message.

    That is so where these would have returned, or where a condition tests their result.
    """
    if not any(module.functions_around(node)):
        return False
    answers = any(function.name in _ANSWERS for function in module.functions_around(node))
    rest = _after(module, node)
    if any(isinstance(inner, ast.Return) and inner.value is not None for inner in _within(tried)):
        return _computes(module, rest) or (answers and _returns_something(rest))
    stored = {name for name in map(_name, _within([*tried, *handled])) if name}
    return any(
        isinstance(statement, ast.If)
        and any(_name(inner, ast.Load) in stored for inner in _within([statement.test]))
        and _computes(module, [*statement.body, *statement.orelse])
        for statement in rest
    )


def _after(module: Module, node: ast.stmt) -> list[ast.stmt]:
    """The statements that follow ``node`` in its block."""
    around = module.parent(node)
    for name in ("body", "orelse", "finalbody"):
        block = getattr(around, name, None)
        if isinstance(block, list) and node in block:
            return block[block.index(node) + 1 :]
    return []


def _name(node: ast.AST, context: type[ast.expr_context] = ast.Store) -> str | None:
    """The name, or the name of the attribute, that ``node`` reads or writes."""
    match node:
        case ast.Name(id=name, ctx=ctx) | ast.Attribute(attr=name, ctx=ctx) if isinstance(ctx, context):
            return name
    return None


def _within(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Yield ``nodes`` and everything in them, except the inside of functions that are defined there.

    Of a very large block only the end: rules search blocks that may stand within each other.
    """
    waiting = list(nodes)
    for _ in range(_MAX_WITHIN):
        if not waiting:
            return
        node = waiting.pop()
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            waiting.extend(ast.iter_child_nodes(node))
