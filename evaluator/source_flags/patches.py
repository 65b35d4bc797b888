"""Changes to code of others: attributes of libraries, operators of torch, functions of CUDA."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from typing import Final

from evaluator.flags import Flag, FlagKind
from evaluator.source_flags.cxx import redefined_runtime_functions
from evaluator.source_flags.extensions import Extension
from evaluator.source_flags.module import Module

__all__ = ["flags"]

_LIBRARIES: Final = frozenset({"torch", "time", "builtins", "model", "triton", "numpy", "math", "functools", "sys"})
_CONFIGURATION: Final = re.compile(r"torch\.backends\.|.*\.(?:config|knobs|_config)\.|sys\.(?:path|stdout|stderr)\b")
"""Settings that are made by assignment."""
_OWN_OPERATORS: Final = re.compile(r"\bTORCH_LIBRARY_IMPL\s*\(\s*aten\b")
_SHOWN: Final = 60


def flags(module: Module, extensions: Sequence[Extension]) -> Iterator[Flag]:
    """Yield the flags ``patches_libraries``."""
    for node in module.nodes:
        if isinstance(node, ast.expr):
            for what in _of_node(module, node):
                yield Flag(FlagKind.PATCHES_LIBRARIES, node.lineno, f"changes {what[:_SHOWN]}")
    for extension in extensions:
        for name in redefined_runtime_functions(extension.code):
            message = f"its C++ has a {name} of its own"
            yield Flag(FlagKind.PATCHES_LIBRARIES, extension.call.lineno, message)
        if _OWN_OPERATORS.search(extension.code):
            message = "its C++ replaces operators of torch (TORCH_LIBRARY_IMPL)"
            yield Flag(FlagKind.PATCHES_LIBRARIES, extension.call.lineno, message)


def _of_node(module: Module, node: ast.expr) -> Iterator[str]:
    match node:
        case ast.Attribute(ctx=ast.Store() | ast.Del()):
            yield from _foreign(module.dotted(node))
        case ast.Subscript(value=table, ctx=ast.Store() | ast.Del()):
            path = _table(module, table)
            if path == "sys.modules" or (path or "").endswith(".__dict__"):
                yield from _foreign(path)
        case ast.Call(func=function, args=[first, *rest]):
            called = module.dotted(function) or ""
            if called in ("builtins.setattr", "builtins.delattr") and rest:
                base, name = module.dotted(first), module.text(rest[0])
                yield from _foreign(None if base is None else f"{base}.{name or '...'}")
            elif called == "torch.library.Library" and module.text(first) == "aten":
                yield "operators of torch (torch.library.Library)"


def _table(module: Module, node: ast.expr) -> str | None:
    """Return the full name of a dictionary; ``vars(x)`` is ``x.__dict__``."""
    match node:
        case ast.Call(func=function, args=[inner]) if module.dotted(function) == "builtins.vars":
            path = module.dotted(inner)
            return None if path is None else f"{path}.__dict__"
    return module.dotted(node)


def _foreign(path: str | None) -> Iterator[str]:
    """Yield ``path``, if it leads into a library and is no setting."""
    if path is None or path.partition(".")[0] not in _LIBRARIES or _CONFIGURATION.match(path):
        return
    parts = path.split(".")
    # A name that nothing in the module binds looks like one of Python's own, and its attribute is set.
    if parts[0] != "builtins" or len(parts) == 2 or parts[1].startswith("__"):
        yield path
