"""Whether a candidate has kernels of its own, and uses those that it has."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from evaluator.candidates.candidate import CLASS_NAME
from evaluator.flags import Flag, FlagKind
from evaluator.source_flags.cxx import unlaunched_kernels
from evaluator.source_flags.extensions import Extension, builds_extension
from evaluator.source_flags.module import Function, Module

__all__ = ["flags", "unused_extensions", "unused_triton_kernels"]

_COMPILERS: Final = ("torch.compile", "torch.jit.script", "torch.jit.trace", "torch.cuda._compile_kernel")
_KERNEL_PACKAGES: Final = frozenset({"triton", "numba", "cupy", "pycuda", "cutlass", "tilelang", "helion", "warp"})
"""With these packages, a kernel is likely to be the candidate's own; the use of one is enough for no flag."""
_SHOWN: Final = 60


def flags(module: Module, extensions: Sequence[Extension]) -> Iterator[Flag]:
    """Yield the flags ``library_only`` and ``unused_kernel``."""
    if not _has_kernels(module):
        line = next((node.lineno for name, node in module.classes().items() if name == CLASS_NAME), None)
        yield Flag(
            FlagKind.LIBRARY_ONLY, line, "no kernel of its own: everything is computed by the library's operators"
        )
    for extension in extensions:
        yield from _unlaunched(extension)
    if not _looks_up_by_name(module):
        yield from _uncalled(module, extensions)
        yield from _unused_triton(module)


def _has_kernels(module: Module) -> bool:
    for node in module.nodes:
        match node:
            case ast.Call() if builds_extension(module, node):
                return True
            case ast.Attribute() | ast.Name():
                path = module.dotted(node) or ""
                if path in _COMPILERS or path.partition(".")[0] in _KERNEL_PACKAGES:
                    return True
            case ast.Constant(value=str(text)) if "__global__" in text and not _is_docstring(module, node):
                return True
    return False


def _is_docstring(module: Module, node: ast.Constant) -> bool:
    return isinstance(module.parent(node), ast.Expr)


def _unlaunched(extension: Extension) -> Iterator[Flag]:
    if extension.complete:
        for name in unlaunched_kernels(extension.code):
            message = f"kernel {name[:_SHOWN]} is defined, and nothing launches it"
            yield Flag(FlagKind.UNUSED_KERNEL, extension.call.lineno, message)


def _looks_up_by_name(module: Module) -> bool:
    """Whether anything is looked up by a name that is made at run time, or by means that do not show one."""
    for node in module.nodes:
        match node:
            case ast.Call(func=function):
                path = module.dotted(function)
                if path in {f"builtins.{name}" for name in ("exec", "eval", "vars", "globals", "locals", "dir")}:
                    return True
                if path == "builtins.getattr" and (len(node.args) < 2 or module.text(node.args[1]) is None):
                    return True
            case ast.Attribute(attr="__dict__" | "__getattribute__"):
                return True
            case ast.ImportFrom(names=[ast.alias(name="*")]):
                return True
    return False


def _uncalled(module: Module, extensions: Sequence[Extension]) -> Iterator[Flag]:
    for extension, unused in _unused_functions(module, extensions):
        what = ", ".join(name[:_SHOWN] for name in unused[:5])
        message = f"extension {extension.name[:_SHOWN]} is built, and nothing uses its {what}"
        yield Flag(FlagKind.UNUSED_KERNEL, extension.call.lineno, message)


def unused_extensions(module: Module, extensions: Sequence[Extension]) -> frozenset[ast.Call]:
    """Return the calls that build extensions of which certainly no function is used."""
    if _looks_up_by_name(module):
        return frozenset()
    found = _unused_functions(module, extensions)
    return frozenset(extension.call for extension, unused in found if len(unused) == len(extension.functions or ()))


def _unused_functions(module: Module, extensions: Sequence[Extension]) -> Iterator[tuple[Extension, list[str]]]:
    mentioned = {node.attr for node in module.nodes if isinstance(node, ast.Attribute)}
    texts = Counter(node.value for node in module.nodes if isinstance(node, ast.Constant) and str is type(node.value))
    for extension in extensions:
        functions = extension.functions or ()
        # Once in the list of functions; a second time it may be an argument of getattr.
        unused = [name for name in functions if name not in mentioned and texts[name] <= 1]
        if unused:
            yield extension, unused


def unused_triton_kernels(module: Module) -> frozenset[Function]:
    """Return the functions under ``triton.jit`` that certainly nothing launches."""
    return frozenset() if _looks_up_by_name(module) else frozenset(_unlaunched_triton(module))


def _unused_triton(module: Module) -> Iterator[Flag]:
    for node in _unlaunched_triton(module):
        message = f"Triton kernel {node.name[:_SHOWN]} is defined, and nothing launches it"
        yield Flag(FlagKind.UNUSED_KERNEL, node.lineno, message)


def _unlaunched_triton(module: Module) -> Iterator[Function]:
    used = {node.id for node in module.nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    used |= {node.attr for node in module.nodes if isinstance(node, ast.Attribute)}
    for node in module.nodes:
        if isinstance(node, Function) and node.name not in used:
            decorators = [item.func if isinstance(item, ast.Call) else item for item in node.decorator_list]
            if any(module.dotted(decorator) == "triton.jit" for decorator in decorators):
                yield node
