"""Ways to call something that no reader of the source can see: code made at run time, names computed at run time."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from evaluator.source_rules.operators import LIBRARIES
from evaluator.source_rules.program import Program

__all__ = ["computed_names", "made_code"]

_MAKES_CODE: Final = frozenset(
    {"builtins.exec", "builtins.eval", "builtins.compile", "marshal.loads", "marshal.load", "pickle.loads",
     "pickle.load", "runpy.run_path", "runpy.run_module", "importlib.util.spec_from_file_location",
     "importlib.util.spec_from_loader", "importlib.machinery.SourceFileLoader", "types.FunctionType", "types.CodeType",
     "types.ModuleType", "imp.load_source", "code.InteractiveInterpreter", "torch.jit.CompilationUnit",
     "torch.jit.load", "torch.package.PackageImporter", "torch.export.load"}
)  # fmt: skip
_TYPES: Final = frozenset({"types.FunctionType", "types.CodeType", "types.ModuleType"})
_ASKS_FOR_TYPES: Final = frozenset({"builtins.isinstance", "builtins.issubclass", "typing.cast"})
_NAMES_MODULES: Final = frozenset({"builtins.__import__", "importlib.import_module"})
_DISPATCHES: Final = (
    "torch._C._dispatch_", "torch._C._jit_", "torch._C._get_operation_overload", "torch._C._get_schema",
    "torch._C._maybe_call_torch_function_for_op_packet", "torch._library.",
)  # fmt: skip
_SETS: Final = ("torch._C._jit_set_", "torch._C._jit_override_can_fuse_")
"""Settings of the compiler, which call nothing."""
_NAMESPACES: Final = frozenset({"builtins.globals", "builtins.locals"})
_ASKS: Final = frozenset({"builtins.hasattr", "builtins.getattr", "builtins.isinstance", "builtins.print"})
_DUNDERS: Final = frozenset({"__getattribute__", "__getattr__", "__dict__"})


def made_code(program: Program) -> Iterator[tuple[int, str]]:
    """Yield each place where code is made or loaded at run time: its line and the words about it."""
    for node in program.nodes:
        match node:
            case ast.Name() | ast.Attribute() if isinstance(node.ctx, ast.Load):
                path = program.path(node)
                if path in _MAKES_CODE and not (path in _TYPES and _is_only_named(program, node)):
                    yield node.lineno, f"{path.removeprefix('builtins.')} makes code at run time"
            case ast.Call(func=function, args=args) if program.path(function) in _NAMES_MODULES:
                if not args or program.module.text(args[0]) is None:
                    yield node.lineno, "imports a module whose name is computed"


def _is_only_named(program: Program, node: ast.expr) -> bool:
    """Whether ``node`` stands in an annotation, or in a question for a type."""
    inner: ast.AST = node
    around = program.module.parent(inner)
    while isinstance(around, ast.Tuple | ast.List | ast.Subscript | ast.BinOp):
        inner, around = around, program.module.parent(around)
    match around:
        case ast.Call(func=function):
            return inner is not function and program.path(function) in _ASKS_FOR_TYPES
        case ast.arg() | ast.Compare():
            return True
        case ast.AnnAssign(annotation=annotation):
            return inner is annotation
        case ast.FunctionDef(returns=annotation) | ast.AsyncFunctionDef(returns=annotation):
            return inner is annotation
    return False


def computed_names(program: Program) -> Iterator[tuple[int, str]]:
    """Yield each place where something of torch is looked up by a name that is computed, or handed on as a whole."""
    for node in program.nodes:
        match node:
            case ast.Call(func=function, args=[first, second, *_]) if program.path(function) == "builtins.getattr":
                if program.path(first) in LIBRARIES and program.module.text(second) is None:
                    yield node.lineno, f"getattr on {program.path(first)} with a name that is computed"
            case ast.Subscript(value=ast.Call(func=function), slice=key, ctx=ast.Load()) if (
                program.path(function) in _NAMESPACES
            ):
                name = program.module.text(key)
                if name is None or name in program.names_of_torch:
                    yield node.lineno, "looks up a name in a namespace"
            case ast.Subscript(value=table, slice=key, ctx=ast.Load()):
                path = program.path(table)
                if (path in LIBRARIES or path == "sys.modules") and program.module.text(key) is None:
                    yield node.lineno, f"looks up a name that is computed in {path}"
            case ast.Name() | ast.Attribute():
                yield from _whole(program, node)


def _whole(program: Program, node: ast.Name | ast.Attribute) -> Iterator[tuple[int, str]]:
    path = program.path(node) or ""
    around = program.module.parent(node)
    dispatches = path.startswith(_DISPATCHES) and not path.startswith(_SETS)
    if dispatches and isinstance(node.ctx, ast.Load) and not isinstance(around, ast.Attribute):
        yield node.lineno, f"calls by {path}"
    if path not in LIBRARIES or path == "torch.Tensor" or not isinstance(node.ctx, ast.Load):
        return
    match around:
        case ast.Attribute(attr=name):
            hands_on = name in _DUNDERS and not isinstance(program.module.parent(around), ast.Subscript)
        case ast.Call(func=function) if node is not function:
            table = program.path(function) == "builtins.vars" and isinstance(
                program.module.parent(around), ast.Subscript
            )
            hands_on = not table and program.path(function) not in _ASKS
        case ast.Assign(targets=targets):
            hands_on = not all(isinstance(target, ast.Name | ast.Attribute) and program.path(target) == path
                               for target in targets)  # fmt: skip
        case ast.Subscript(value=table) if node is table:
            hands_on = False  # see computed_names
        case ast.Compare() | ast.Expr():
            hands_on = False
        case _:
            hands_on = True
    if hands_on:
        yield node.lineno, f"hands on {path} as a whole"
