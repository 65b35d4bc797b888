"""Common mistakes, recognised from an evaluation and the candidate's source. Torch-free.

They complete the hints of an evaluation (``evaluator.results.explain``), which come from its message alone. Each is a
guess that fits the outcome. A candidate that passed gets none, except for gradients that were not asked for.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from evaluator.candidates.candidate import parse_quietly
from evaluator.evaluation import Evaluation, Gradients, Verdict
from evaluator.source_flags.cxx import code_of
from evaluator.source_flags.extensions import find_extensions
from evaluator.source_flags.module import Module

__all__ = ["likely_mistakes"]

_INT_MAX: Final = 2**31
_ITEM_BYTES: Final = {"float64": 8, "int64": 8, "float32": 4, "int32": 4, "float16": 2, "bfloat16": 2, "int16": 2}

_UNEXPECTED: Final = re.compile(r"load_inline\(\) got an unexpected keyword argument '(\w+)'")
_CONTEXT_HEADER: Final = "ATen/cuda/CUDAContext.h"
_CONTEXT_USE: Final = re.compile(r"\b(?:at::cuda\b|c10::cuda\b|getCurrentCUDAStream\b|getCurrentDeviceProperties\b)")
_CONTEXT_GIVEN: Final = re.compile(r"#\s*include\s*[<\"](?:ATen/cuda/|c10/cuda/)")
_UNDECLARED: Final = re.compile(r"main\.cpp:\d+: .*was not declared in this scope")
_INT_OFFSET: Final = re.compile(
    r"\bint\s+\w+\s*=[^;]{0,200}(?:\bblockIdx\b|\bnumel\s*\(|\bsize\s*\(|\bsizeof\b)|\bint\s+(?:n|num\w*|size|total|bytes|numel)\s*[,)]"
)
_LAUNCH: Final = "<<<"
_LAUNCH_CHECK: Final = re.compile(
    r"C10_CUDA_KERNEL_LAUNCH_CHECK|C10_CUDA_CHECK|AT_CUDA_CHECK|CUDA_CHECK|cudaGetLastError|cudaPeekAtLastError"
)
_NOTHING_WRITTEN: Final = frozenset({"never_written", "zeros", "constant"})


def likely_mistakes(evaluation: Evaluation, source: str) -> tuple[str, ...]:
    """Return the author's likely mistakes, each with its remedy; in a fixed order."""
    if evaluation.verdict is Verdict.PASSED and evaluation.gradients is not Gradients.MISSING:
        return ()
    found = (rule(evaluation, source) for rule in _RULES)
    return tuple(hint for hint in found if hint and hint not in evaluation.hints)


def _unknown_argument(evaluation: Evaluation, _source: str) -> str:
    unexpected = _UNEXPECTED.search(evaluation.message)
    if unexpected is None or any("load_inline takes" in hint for hint in evaluation.hints):
        return ""
    return (
        f"load_inline has no argument {unexpected[1]}: it takes name, cpp_sources, cuda_sources, functions, "
        "extra_cflags, extra_cuda_cflags, extra_ldflags, extra_include_paths and with_cuda"
    )


def _missing_header(evaluation: Evaluation, source: str) -> str:
    if evaluation.verdict is not Verdict.COMPILE_ERROR or _CONTEXT_GIVEN.search(source):
        return ""
    if not _CONTEXT_USE.search(evaluation.message):
        return ""
    return f"at::cuda::getCurrentCUDAStream and its like need #include <{_CONTEXT_HEADER}> in the source that uses them"


def _undeclared_functions(evaluation: Evaluation, source: str) -> str:
    if evaluation.verdict is not Verdict.COMPILE_ERROR:
        return ""
    if not _UNDECLARED.search(evaluation.message) and not _binds_without_declaring(source):
        return ""
    return (
        "functions=[...] is bound in cpp_sources: each function named there must be declared in it, for example "
        'cpp_sources="torch::Tensor my_op(torch::Tensor x);", even where it is defined in cuda_sources'
    )


def _missing_backward(evaluation: Evaluation, _source: str) -> str:
    if evaluation.gradients is not Gradients.MISSING or any("autograd.Function" in hint for hint in evaluation.hints):
        return ""
    return (
        "the output carries no graph, so nothing can be trained through it: wrap the kernel in a "
        "torch.autograd.Function with a backward"
    )


def _narrow_integers(evaluation: Evaluation, source: str) -> str:
    fault = evaluation.details.get("device_fault") == "illegal memory access"
    if evaluation.verdict not in (Verdict.WRONG_OUTPUT, Verdict.WRONG_GRADIENT) and not fault:
        return ""
    mismatch: dict[str, Any] = evaluation.details.get("mismatch") or {}
    item_bytes = _ITEM_BYTES.get(str(mismatch.get("dtype")), 1)
    # The tensor's size is not known for a fault: the full sizes are the ones to which this happens.
    large = mismatch["total"] * item_bytes >= _INT_MAX if "total" in mismatch else evaluation.size == "full"
    if not large or not any(_INT_OFFSET.search(code) for code in _kernels(source)):
        return ""
    return (
        "an int ends at 2^31 - 1, and this tensor has offsets beyond that (in elements or in bytes): "
        "count in int64_t, and widen before multiplying: static_cast<int64_t>(blockIdx.x) * blockDim.x"
    )


def _misaligned_vectors(evaluation: Evaluation, _source: str) -> str:
    if "misaligned address" not in f"{evaluation.message} {evaluation.details.get('device_fault')}":
        return ""
    return (
        "a float4 must lie at a multiple of 16 bytes: use it only where the pointer and the row's length are multiples "
        "of four floats, and single floats for the rest"
    )


def _unchecked_launch(evaluation: Evaluation, source: str) -> str:
    if evaluation.verdict is not Verdict.WRONG_OUTPUT or evaluation.device != "cuda":
        return ""
    patterns = (evaluation.details.get("mismatch") or {}).get("patterns", ())
    if not any(pattern["code"] in _NOTHING_WRITTEN for pattern in patterns):
        return ""
    if _LAUNCH not in source or _LAUNCH_CHECK.search(source):
        return ""
    return (
        "the kernel may never have started, and nobody asked: put C10_CUDA_KERNEL_LAUNCH_CHECK() after each launch "
        "(#include <c10/cuda/CUDAException.h>); too many threads or too much shared memory in a block are usual reasons"
    )


_RULES: Final[tuple[Callable[[Evaluation, str], str], ...]] = (
    _unknown_argument,
    _undeclared_functions,
    _missing_header,
    _misaligned_vectors,
    _narrow_integers,
    _unchecked_launch,
    _missing_backward,
)


def _module(source: str) -> Module | None:
    try:
        return Module(parse_quietly(source))
    except (SyntaxError, ValueError, RecursionError):
        return None


def _kernels(source: str) -> tuple[str, ...]:
    """The C++ and CUDA of the extensions, without comments; where none is found, all of the source."""
    module = _module(source)
    found = () if module is None else tuple(extension.code for extension in find_extensions(module))
    return found if any(found) else (code_of(source),)


def _binds_without_declaring(source: str) -> bool:
    """Whether some ``load_inline`` has functions to bind and empty C++ sources."""
    module = _module(source)
    if module is None:
        return False
    for extension in find_extensions(module):
        given = {keyword.arg: keyword.value for keyword in extension.call.keywords if keyword.arg is not None}
        cpp = given["cpp_sources"] if "cpp_sources" in given else (*extension.call.args, None, None)[1]
        texts = module.texts(cpp)
        if texts is not None and "functions" in given and not any(code_of(text).strip() for text in texts):
            return True
    return False
