"""Arithmetic of less precision than the problem's: TF32, half precisions, fast mathematics."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from typing import Final

from evaluator.flags import Flag, FlagKind
from evaluator.source_flags.extensions import Extension
from evaluator.source_flags.module import Module

__all__ = ["flags"]

_HALF: Final = frozenset({"float16", "half", "bfloat16"})
_EIGHTH: Final = ("float8_", "float8e")
_SWITCHES: Final = frozenset(
    {"allow_tf32", "allow_fp16_reduced_precision_reduction", "allow_bf16_reduced_precision_reduction",
     "allow_fp16_accumulation"}
)  # fmt: skip
_REDUCED: Final = frozenset({"tf32", "bf16", "high", "medium"})
_FAST_FLAGS: Final = frozenset({"use_fast_math", "ffast-math", "Ofast", "funsafe-math-optimizations", "ftz=true"})
_TENSOR_FLOAT: Final = re.compile(
    r"\b(setAllowTF32CuBLAS(?=\s*\(\s*true)|CUBLAS_COMPUTE_32F_FAST_\w+|CUBLAS_TF32_TENSOR_OP_MATH"
    r"|__float_to_tf32|precision::tf32)\b"
)
_CONVOLUTIONS: Final = re.compile(r"\bsetAllowTF32CuDNN(?=\s*\(\s*true)\b")
_TO_HALF: Final = re.compile(r"\b(__float2half\w*|__float22half2\w*|__float2bfloat16\w*|__float22bfloat162\w*)\s*\(")
_CAST: Final = re.compile(
    r"\.\s*(?:to|toType)\s*\(\s*(?:at|torch|c10)\s*::\s*(?:ScalarType\s*::\s*)?k?(?:Half|BFloat16|Float16)\b"
)
# A kernel that serves several precisions selects the one of its input.
_ASKS_FOR_TYPE: Final = re.compile(
    r"\bAT_DISPATCH_|\bscalar_type\b|\bdtype\s*\(|\bdata_ptr\s*<\s*(?:at::|c10::|__)?\w*[hH]alf"
)


def flags(module: Module, extensions: Sequence[Extension], of_precision: str, *, tf32: bool = True) -> Iterator[Flag]:
    """Yield the flags ``precision_shortcut``. On a problem in half precision, half precision is none. With ``tf32``,
    switches of cuDNN for TF32 are none: they are on by default."""
    half_is_less = of_precision == "float32"
    for node in module.nodes:
        message = _of_node(module, node, half_is_less=half_is_less, tf32=tf32)
        if message and isinstance(node, ast.expr | ast.stmt):
            yield Flag(FlagKind.PRECISION_SHORTCUT, node.lineno, message)
    for extension in extensions:
        for message in _of_extension(extension, half_is_less=half_is_less, tf32=tf32):
            yield Flag(FlagKind.PRECISION_SHORTCUT, extension.call.lineno, message)


def _of_node(module: Module, node: ast.AST, *, half_is_less: bool, tf32: bool) -> str | None:
    match node:
        case ast.Assign(targets=targets, value=value):
            for target in targets:
                path = (module.dotted(target) or "").split(".")
                usual = tf32 and path[2:3] == ["cudnn"] and _is_tf32(module, path[-1], value)
                if path[:2] == ["torch", "backends"] and not usual and _is_on(module, path[-1], value):
                    return f"switches {path[-1]} on"
        case ast.Call(func=function, args=args, keywords=keywords):
            return _of_call(module, function, [*args, *(keyword.value for keyword in keywords)], half_is_less) or (
                _of_dot(module, function, keywords) if half_is_less else None
            )
    return None


def _is_tf32(module: Module, switch: str, value: ast.expr) -> bool:
    return switch == "allow_tf32" or (switch == "fp32_precision" and module.text(value) == "tf32")


def _is_on(module: Module, switch: str, value: ast.expr) -> bool:
    if switch in _SWITCHES:
        # A value that is sometimes true; a name may stand for the earlier setting.
        return isinstance(value, ast.Compare | ast.BoolOp | ast.IfExp) or (
            isinstance(value, ast.Constant) and value.value is True
        )
    return switch == "fp32_precision" and module.text(value) in _REDUCED


def _of_call(module: Module, function: ast.expr, given: list[ast.expr], half_is_less: bool) -> str | None:
    path = module.dotted(function) or ""
    if path in ("torch.set_float32_matmul_precision", "torch._C._set_float32_matmul_precision"):
        reduced = any(module.text(value) in _REDUCED for value in given)
        return "asks for matrix products of less precision" if reduced else None
    if path in ("torch.autocast", "torch.amp.autocast", "torch.cuda.amp.autocast", "torch.cpu.amp.autocast"):
        switched_off = any(isinstance(value, ast.Constant) and value.value is False for value in given)
        return "computes under autocast" if half_is_less and not switched_off else None
    match function:
        case ast.Attribute(attr="half" | "bfloat16" as name) if half_is_less and not given:
            return f"casts to {name}"
        case ast.Attribute(attr="to" | "type" | "astype"):
            types = [(module.dotted(value) or "").rpartition(".")[2] for value in given if _is_type(module, value)]
            for cast in types:
                if cast.startswith(_EIGHTH) or (half_is_less and cast in _HALF):
                    return f"casts to {cast}"
    return None


def _is_type(module: Module, value: ast.expr) -> bool:
    return (module.dotted(value) or "").startswith(("torch.", "triton.language."))


def _of_dot(module: Module, function: ast.expr, keywords: list[ast.keyword]) -> str | None:
    if module.dotted(function) != "triton.language.dot":
        return None
    for keyword in keywords:
        reduced = keyword.arg == "input_precision" and module.text(keyword.value) == "tf32"
        allowed = (
            keyword.arg == "allow_tf32" and isinstance(keyword.value, ast.Constant) and keyword.value.value is True
        )
        if reduced or allowed:
            return "multiplies in TF32"
    return None


def _of_extension(extension: Extension, *, half_is_less: bool, tf32: bool) -> Iterator[str]:
    for flag in extension.flags:
        # One text may hold several, and nvcc hands on the options after -Xcompiler.
        for part in re.split(r"[\s,]+", flag):
            if part.lstrip("-") in _FAST_FLAGS:
                yield f"is compiled with {part}"
    code = extension.code
    for name in sorted({*_TENSOR_FLOAT.findall(code), *(() if tf32 else _CONVOLUTIONS.findall(code))}):
        yield f"its C++ uses {name}"
    if half_is_less:
        if _CAST.search(code):
            yield "its C++ casts to half precision"
        if _TO_HALF.search(code) and not _ASKS_FOR_TYPE.search(code):
            yield "its kernel converts to half precision"
