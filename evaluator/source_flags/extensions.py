"""The extensions that a candidate builds: the arguments of ``load_inline``, as far as the source shows them."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from evaluator.source_flags.cxx import bound_functions, code_of
from evaluator.source_flags.module import Module

__all__ = ["BUILDERS", "Extension", "builds_extension", "find_extensions"]

BUILDERS: Final = frozenset(
    f"torch.utils.cpp_extension.{name}" for name in ("load", "load_inline", "CUDAExtension", "CppExtension")
)
_POSITIONAL: Final = ("name", "cpp_sources", "cuda_sources")
"""Arguments of ``load_inline`` with the same positions in every version of torch."""

_MAX_EXTENSIONS: Final = 16
_MAX_CHARACTERS: Final = 600_000
"""Twice the most characters of a candidate, because a text can be used again."""


@dataclass(frozen=True)
class Extension:
    """One call of ``load_inline``.

    ``sources``: the known C++ and CUDA texts; ``complete``: whether these are all. ``functions``: the functions that
    Python can call, ``None`` where they are not known. ``flags``: the known options of the compilers.
    """

    call: ast.Call
    name: str
    sources: tuple[str, ...]
    complete: bool
    functions: tuple[str, ...] | None
    flags: tuple[str, ...]

    @cached_property
    def code(self) -> str:
        """Return the sources without comments and without the contents of string literals."""
        return "\n".join(code_of(source) for source in self.sources)


def builds_extension(module: Module, call: ast.Call) -> bool:
    """Whether ``call`` is one of torch's functions that build extensions."""
    path = module.dotted(call.func)
    return path in BUILDERS or (path or "").endswith(".load_inline")


def find_extensions(module: Module) -> Sequence[Extension]:
    """The first calls of ``load_inline`` in ``module``, in the order of the source."""
    found: list[Extension] = []
    characters = 0
    for node in module.nodes:
        if isinstance(node, ast.Call) and (module.dotted(node.func) or "").endswith(".load_inline"):
            extension = _extension(module, node)
            characters += sum(map(len, extension.sources))
            if len(found) == _MAX_EXTENSIONS or characters > _MAX_CHARACTERS:
                break
            found.append(extension)
    return found


def _extension(module: Module, call: ast.Call) -> Extension:
    given: dict[str, ast.expr] = dict(zip(_POSITIONAL, call.args, strict=False))
    given |= {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg is not None}
    # Arguments that are unpacked from somewhere, or further ones by position, could be anything.
    complete = len(call.args) <= len(_POSITIONAL) and not any(isinstance(arg, ast.Starred) for arg in call.args)
    complete = complete and all(keyword.arg is not None for keyword in call.keywords)
    parts = [module.texts(given[name]) for name in ("cpp_sources", "cuda_sources") if name in given]
    sources = tuple(text for part in parts for text in part or ())
    complete = complete and None not in parts
    functions = module.texts(given["functions"]) if "functions" in given else None
    if functions is None and "functions" not in given and complete:
        functions = tuple(name for source in sources for name in bound_functions(source)) or None
    flags = [module.texts(given[name]) for name in ("extra_cflags", "extra_cuda_cflags") if name in given]
    return Extension(
        call=call,
        name=(module.text(given["name"]) if "name" in given else None) or "",
        sources=sources,
        complete=complete,
        functions=functions or None,
        flags=tuple(flag for part in flags for flag in part or ()),
    )
