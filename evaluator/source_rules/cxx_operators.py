"""Calls of torch's operators in the C++ and CUDA texts of a candidate."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from evaluator.source_flags.cxx import code_of
from evaluator.source_flags.extensions import Extension
from evaluator.source_flags.module import Module
from kerneljudge.terms.operator_names import TENSOR_METHODS, operators_of

__all__ = ["CxxText", "cxx_texts", "hidden_in_cxx", "operators_in_cxx"]

_NAMESPACE: Final = re.compile(r"\bnamespace\s+(\w{1,40})\s*=\s*(?:::\s*)?(?:at|torch)\b")
_QUALIFIED: Final = r"(?<![\w:])(?:::\s*)?(?:{spaces})((?:\s*::\s*\w+){{1,8}})(?=\s*[(<{{;]|\s+\w)"
_METHOD: Final = re.compile(r"(?:\.|->)\s*(\w+)\s*\(")
_PLAIN: Final = re.compile(r"(?<![\w:.>])(\w+)\s*\(")
_USING: Final = r"\busing\s+namespace\s+(?:::\s*)?(?:{spaces})\b"
_LIBRARY: Final = re.compile(r"\b(cublas\w{0,40}?(?:[gG]emm|Matmul|[gG]emv)\w{0,40})\s*\(")
_CUDNN: Final = re.compile(
    r"\b(cudnn(Convolution|Softmax|Pooling|Activation|BatchNormalization|Normalization|LRNCrossChannel|Dropout|RNN"
    r"|MultiHeadAttn|ReduceTensor)(?:(?:BiasActivation)?(?:Forward|Backward)\w{0,40})?)\s*\("
)
_OF_CUDNN: Final[Mapping[str, tuple[str, ...]]] = {
    "Convolution": ("convolution",),
    "Softmax": ("softmax", "log_softmax"),
    "Pooling": tuple(f"{kind}_pool{n}d" for kind in ("avg", "max", "adaptive_avg", "adaptive_max") for n in (1, 2, 3)),
    "Activation": ("relu", "relu6", "sigmoid", "tanh", "elu", "silu"),
    "BatchNormalization": ("batch_norm",),
    "Normalization": ("batch_norm", "group_norm"),
    "LRNCrossChannel": ("local_response_norm",),
    "Dropout": ("dropout",),
    "RNN": ("LSTM",),
    "MultiHeadAttn": ("MultiheadAttention",),
    "ReduceTensor": ("sum", "mean", "prod", "max", "min", "amax", "amin", "norm"),
}
"""Functions of cuDNN, by the middle of their names, as names of torch. A descriptor tells which one it is."""
_BRACES: Final = re.compile(r"[{};]|\b(?:__global__|__device__|GPU_LAMBDA|C10_DEVICE|C10_HOST_DEVICE)\b")
_TENSOR: Final = re.compile(r"\bTensor\b")
_MAX_ALIASES: Final = 16
_HIDES: Final = re.compile(
    r"\b(c10\s*::\s*Dispatcher|findSchemaOrThrow|findOp|callBoxed|torch\s*::\s*jit\s*::\s*\w+|getOperatorForLiteral"
    r"|getAllOperatorsFor|py\s*::\s*module_?\s*::\s*import|PyImport_\w+|PyRun_\w+|PyObject_Call\w*|py\s*::\s*exec"
    r"|py\s*::\s*eval|dlsym|dlopen|cudnnBackendExecute)\b"
)
_LOOKS_LIKE_CXX: Final = re.compile(r"#\s*include|\b(?:at|torch)\s*::|PYBIND11_MODULE|__global__")
_WORD: Final = re.compile(r"\w+")
_WHITE: Final = re.compile(r"\s")
_MAX_CHARACTERS: Final = 1_000_000


@dataclass(frozen=True)
class CxxText:
    """A text in C++ or CUDA, in ``lines`` of the candidate, the first and the last."""

    text: str
    lines: tuple[int, int]

    @cached_property
    def _first_lines(self) -> dict[str, int]:
        """The line of each word's first mention outside of comments of whole lines, counted from 0 in the text."""
        found: dict[str, int] = {}
        for number, line in enumerate(self.text.split("\n")):
            for word in () if line.lstrip().startswith("//") else _WORD.findall(line):
                found.setdefault(word, number)
        return found

    def line_of(self, word: str) -> int:
        """Return the line of the candidate in which the text first mentions ``word``."""
        first, last = self.lines
        # A line feed that is written as an escape begins no line of the candidate.
        return min(first + self._first_lines.get(word, 0), last)


def operators_in_cxx(texts: Sequence[CxxText]) -> Iterator[tuple[int, str, frozenset[str]]]:
    """Yield each call of an operator: a line of the candidate, the call as written, and its operators."""
    for text in texts:
        code = code_of(text.text)
        aliases = sorted(set(_NAMESPACE.findall(code)))[:_MAX_ALIASES]
        spaces = "|".join(("at", "torch", *aliases))
        for match in re.finditer(_QUALIFIED.format(spaces=spaces), code):
            parts = [part.strip() for part in match[1].split("::")[1:]]
            if found := _of_parts(parts):
                yield text.line_of(parts[-1]), f"{_WHITE.sub('', match[0])} in C++", found
        of_host = _without_device_code(code)
        declared, called = _plain_names(code)[0], _plain_names(of_host)[1]
        for match in _METHOD.finditer(of_host):
            # A struct of the text may have a method of that name.
            if match[1].strip("_") in TENSOR_METHODS and match[1] not in declared:
                yield text.line_of(match[1]), f".{match[1]} in C++", operators_of(match[1])
        for match in _LIBRARY.finditer(code):
            yield text.line_of(match[1]), f"{match[1]} in C++", frozenset({"matmul"})
        for match in _CUDNN.finditer(code):
            operators = frozenset[str]().union(*map(operators_of, _OF_CUDNN[match[2]]))
            yield text.line_of(match[1]), f"{match[1]} in C++", operators
        if re.search(_USING.format(spaces=spaces), code):
            for name in called - declared:
                yield text.line_of(name), f"{name} in C++", operators_of(name)


def hidden_in_cxx(texts: Sequence[CxxText]) -> Iterator[tuple[int, str]]:
    """Yield each way to call an operator by its name, or Python: its line and the words of the source."""
    for text in texts:
        for match in _HIDES.finditer(code_of(text.text)):
            name = _WHITE.sub("", match[1])
            yield text.line_of(name.rpartition("::")[2]), name


def cxx_texts(module: Module, extensions: Sequence[Extension]) -> tuple[CxxText, ...]:
    """Return the C++ and CUDA texts.

    They are the sources of ``extensions``, and other constants that look like C++: they may be parts of one.
    """
    constants = [node for node in module.nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    # A text that stands alone is a docstring.
    alike = [
        node
        for node in constants
        if _LOOKS_LIKE_CXX.search(str(node.value)) and not isinstance(module.parent(node), ast.Expr)
    ]
    found: dict[str, CxxText] = {}
    for node in alike:
        text = str(node.value)
        found.setdefault(text, CxxText(text, (node.lineno, node.end_lineno or node.lineno)))
    for extension in extensions:
        for text in extension.sources:
            # A text that is a part of a constant is read with it.
            if not any(text.strip() in each for each in found):
                found[text] = CxxText(text, (extension.call.lineno, extension.call.lineno))
    kept, left = [], _MAX_CHARACTERS
    for each in found.values():
        left -= len(each.text)
        if left > 0:
            kept.append(each)
    return tuple(kept)


def _without_device_code(code: str) -> str:
    """Return ``code`` without the bodies of functions for the GPU, which can call none of torch's operators."""
    kept: list[str] = []
    end = begin = opened = depth = 0
    for_device = False
    for match in _BRACES.finditer(code):
        word = match[0]
        if depth:
            depth += {"{": 1, "}": -1}.get(word, 0)
            # A host's function can be marked as one of the GPU as well.
            if depth == 0 and not _TENSOR.search(code, begin, match.end()):
                kept.append(code[end:opened])
                end = match.start()
        elif word == "{" and for_device:
            opened, depth = match.end(), 1
        elif word not in "{};":
            for_device = True
        if depth == 0 and word in "{};":
            begin, for_device = match.end(), False
    return "".join((*kept, code[end:]))


def _plain_names(code: str) -> tuple[set[str], set[str]]:
    """Return the names without a namespace that ``code`` declares as functions, and those that it calls."""
    declared, called = set[str](), set[str]()
    for match in _PLAIN.finditer(code):
        before = code[max(0, match.start() - 40) : match.start()].rstrip()
        is_declared = before[-1:].isalnum() and before.split()[-1] not in ("return", "else", "co_return")
        (declared if is_declared else called).add(match[1])
    return declared, called


def _of_parts(parts: list[str]) -> frozenset[str]:
    # at::_ops::mm::call(…) has the name in the place before the last one.
    if parts[-1] in ("call", "redispatch", "forward") and len(parts) > 1:
        parts = parts[:-1]
    return operators_of(parts[-1].removesuffix("_out").removesuffix("Options").removesuffix("Impl"))
