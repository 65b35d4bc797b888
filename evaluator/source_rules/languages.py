"""The languages of a candidate's kernels, as far as its source shows them."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import Final

from evaluator.candidates.candidate import CLASS_NAME
from evaluator.source_flags.extensions import Extension, builds_extension
from evaluator.source_flags.kernels import unused_extensions, unused_triton_kernels
from evaluator.source_flags.module import Module

__all__ = ["OTHER", "TRITON", "kernel_languages"]

OTHER: Final = "other"
"""A kernel by other means than the languages that a rule can name, or one whose language cannot be told."""

TRITON: Final = frozenset(
    {"triton.jit", "triton.runtime.jit.jit", "triton.experimental.gluon.jit", "triton.experimental.gluon._runtime.jit"}
)
"""The functions under which Triton compiles, Gluon among them."""

_OTHER_PACKAGES: Final = frozenset({"numba", "cupy", "pycuda", "cutlass", "tilelang", "helion", "warp", "cuda", "jax"})
_OTHER_MEANS: Final = ("ctypes.CDLL", "ctypes.cdll", "ctypes.PyDLL", "torch.ops.load_library", "cffi.FFI")
_CUDA_MEANS: Final = ("torch.cuda._compile_kernel", "torch.cuda.jiterator.")
_CUDA_ENDS: Final = (".cu", ".cuh")
_NAMES: Final = {"cuda": "CUDA", "cpp": "C++", OTHER: "a language that cannot be told"}
_CXX_ENDS: Final = (".cpp", ".cc", ".cxx", ".c")


def kernel_languages(module: Module, extensions: Sequence[Extension]) -> Iterator[tuple[str, int, str]]:
    """Yield each kernel's language, its line, and the words about it.

    - ``cuda``: an extension with CUDA sources (``cuda_sources``, or a file ``.cu``), or a kernel that torch compiles
      at run time. ``cpp``: an extension without any.
    - ``triton``: a function under ``triton.jit``.
    - ``other``: see ``OTHER``.
    - ``torch``: none of these, also where ``torch.compile`` makes kernels.

    A kernel or an extension that nothing uses does not count.
    """
    unused = {*unused_extensions(module, extensions), *unused_triton_kernels(module)}
    found = [each for node in module.nodes if node not in unused for each in _of_node(module, node)]
    if found:
        yield from found
        return
    line = next((node.lineno for name, node in module.classes().items() if name == CLASS_NAME), 1)
    yield "torch", line, "no kernel of its own that it uses"


def _of_node(module: Module, node: ast.AST) -> Iterator[tuple[str, int, str]]:
    match node:
        case ast.Call() if builds_extension(module, node):
            language = _of_build(module, node)
            yield language, node.lineno, f"builds an extension in {_NAMES[language]}"
        case ast.FunctionDef(name=name, lineno=line, decorator_list=decorators):
            plain = [item.func if isinstance(item, ast.Call) else item for item in decorators]
            if any(module.dotted(item) in TRITON for item in plain):
                yield "triton", line, f"{name[:60]} is a kernel in Triton"
        case ast.Call(func=function, args=[_, *_], lineno=line) if module.dotted(function) in TRITON:
            yield "triton", line, "compiles a kernel in Triton"
        case ast.Attribute(lineno=line) | ast.Name(lineno=line) if isinstance(node.ctx, ast.Load):
            path = module.dotted(node) or ""
            if path.startswith(_CUDA_MEANS):
                yield "cuda", line, f"{path} compiles a kernel in CUDA"
            elif path in _OTHER_MEANS or path.partition(".")[0] in _OTHER_PACKAGES:
                yield OTHER, line, f"has kernels by {path}"


def _of_build(module: Module, call: ast.Call) -> str:
    given = {keyword.arg: keyword.value for keyword in call.keywords}
    path = module.dotted(call.func) or ""
    if path.endswith(".load_inline"):
        unpacked = any(isinstance(argument, ast.Starred) for argument in call.args)
        cuda = given.get("cuda_sources", call.args[2] if len(call.args) > 2 and not unpacked else None)
        if cuda is not None and module.texts(cuda) not in ((), ("",)):
            return "cuda"
        return OTHER if unpacked or None in given else "cpp"
    sources = given.get("sources", call.args[1] if len(call.args) > 1 else None)
    ends = _endings(module, sources)
    if path.endswith(".CUDAExtension") or any(end in _CUDA_ENDS for end in ends):
        return "cuda"
    return "cpp" if ends and all(end in _CXX_ENDS for end in ends) else OTHER


def _endings(module: Module, sources: ast.expr | None) -> list[str]:
    """The endings of the files in ``sources``, an empty one where it is not known."""
    while isinstance(sources, ast.Name):
        value = module.value_of(sources)
        if value is None or isinstance(value, ast.Name):
            return []
        sources = value
    if not isinstance(sources, ast.List | ast.Tuple):
        return []
    return [_ending(module, item) for item in sources.elts]


def _ending(module: Module, item: ast.expr) -> str:
    """The ending of the file name that ``item`` is, or ends with: ``str(FOLDER / "kernel.cu")`` has one."""
    for _ in range(8):
        text = module.text(item)
        if text is not None:
            return text[text.rfind(".") :] if "." in text else ""
        match item:
            case ast.Name():
                value = module.value_of(item)
                if value is None:
                    return ""
                item = value
            case ast.Call(args=[*_, last]):
                item = last
            case ast.BinOp(op=ast.Div() | ast.Add(), right=right):
                item = right
            case ast.JoinedStr(values=[*_, last]):
                item = last
            case _:
                return ""
    return ""
