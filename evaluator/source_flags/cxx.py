"""C++ and CUDA sources, read as far as possible without a compiler.

Every pattern here takes time in proportion to the text, because a candidate wrote it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Final

__all__ = ["bound_functions", "code_of", "redefined_runtime_functions", "unlaunched_kernels", "without_comments"]

_COMMENT: Final = r"//(?:\\\n|[^\n])*|/\*.*?(?:\*/|\Z)"
_TEXT: Final = r'R"(?P<mark>[^()\\\s]{0,16})\(.*?(?:\)(?P=mark)"|\Z)|"(?:\\.|[^"\\\n])*"?|' + r"'(?:\\.|[^'\\\n])'"
_LEXER: Final = re.compile(f"(?P<comment>{_COMMENT})|(?P<text>{_TEXT})", re.DOTALL)
_WORD: Final = re.compile(r"[A-Za-z_]\w*")
_LEFT_OUT: Final = re.compile(r"[ \t]*#[ \t]*if[ \t]+(?:0|false)\b")
_OPENS: Final = re.compile(r"[ \t]*#[ \t]*if")
_ELSE: Final = re.compile(r"[ \t]*#[ \t]*(?:else|elif)")
_CLOSES: Final = re.compile(r"[ \t]*#[ \t]*endif")
_KERNEL: Final = re.compile(r"\b__global__\b")
_UP_TO_PARENTHESIS: Final = re.compile(r"[^(){};=]{0,400}")
_BINDING: Final = re.compile(r'\bm\s*\.\s*def\s*\(\s*"(\w+)"')
_RUNTIME_FUNCTION: Final = re.compile(
    r"\b(?:cudaError_t|CUresult|int)\s+(?:CUDARTAPI\s+|CUDAAPI\s+)?"
    r"(cu(?:da)?(?:Event|Stream)[A-Z]\w*|cu(?:da)?(?:LaunchKernel|Malloc|Free|Mem[A-Z]|GraphLaunch)\w*"
    r"|cudaDeviceSynchronize|cuCtxSynchronize|clock_gettime)\s*\([^(){};]{0,400}\)\s*(?:noexcept\s*)?\{"
)
_MAX_KERNELS: Final = 200
_MAX_PARAMETERS: Final = 4000
_MAX_ATTRIBUTES: Final = 6


def without_comments(source: str) -> str:
    """Return ``source`` without its comments; string literals stay."""
    return _LEXER.sub(lambda match: " " if match["comment"] is not None else match[0], source)


def code_of(source: str) -> str:
    """Return ``source`` without comments, without the contents of string literals, and without ``#if 0`` parts."""
    bare = _LEXER.sub(lambda match: " " if match["comment"] is not None else '""', source)
    return "\n".join(_compiled(bare.split("\n")))


def unlaunched_kernels(code: str) -> list[str]:
    """Return kernels defined in ``code`` (see ``code_of``) that are mentioned only in their declarations.

    Any other mention of a kernel may launch it: by ``<<<``, by its address, by way of a template.
    """
    # Names can be put together by the preprocessor.
    if "##" in code:
        return []
    declared, defined = Counter[str](), set[str]()
    for count, (name, is_definition) in enumerate(_kernels(code)):
        if not name or count == _MAX_KERNELS:
            return []
        declared[name] += 1
        if is_definition:
            defined.add(name)
    if not defined:
        return []
    mentioned = Counter(_WORD.findall(code))
    return sorted(name for name in defined if mentioned[name] == declared[name])


def bound_functions(source: str) -> list[str]:
    """Return the names that the source's ``PYBIND11_MODULE`` makes visible to Python."""
    plain = without_comments(source)
    return _BINDING.findall(plain) if "PYBIND11_MODULE" in plain else []


def redefined_runtime_functions(code: str) -> list[str]:
    """Return functions of the CUDA runtime and driver, and of the system's clock, that ``code`` defines."""
    return sorted(set(_RUNTIME_FUNCTION.findall(code)))


def _compiled(lines: list[str]) -> Iterator[str]:
    depth = left_out_at = 0
    for line in lines:
        if _OPENS.match(line):
            depth += 1
            if not left_out_at and _LEFT_OUT.match(line):
                left_out_at = depth
        elif _ELSE.match(line) and depth == left_out_at:
            left_out_at = 0
        if not left_out_at:
            yield line
        if _CLOSES.match(line):
            left_out_at = 0 if depth == left_out_at else left_out_at
            depth = max(depth - 1, 0)


def _kernels(code: str) -> Iterator[tuple[str, bool]]:
    """Yield the name of each declared kernel, empty where it is not certain, and whether its body follows."""
    for match in _KERNEL.finditer(code):
        position = match.end()
        returns_nothing = code[max(0, match.start() - 40) : match.start()].split()[-1:] == ["void"]
        for _ in range(_MAX_ATTRIBUTES):
            head = _UP_TO_PARENTHESIS.match(code, position)
            assert head is not None
            position = head.end()
            if code[position : position + 1] != "(":
                continue
            words = _WORD.findall(head[0].partition("<")[0])
            end = _after_parentheses(code, position)
            returns_nothing = returns_nothing or "void" in words
            # Attributes and macros come with parentheses of their own, before the name or before its type.
            if returns_nothing and words and words[-1] != "void" and not _is_attribute(words[-1]):
                yield words[-1], code[end : end + 200].lstrip()[:1] == "{"
                break
            position = end
        else:
            yield "", False


def _is_attribute(word: str) -> bool:
    return word == "alignas" or (word.startswith("__") and word.endswith("__"))


def _after_parentheses(code: str, start: int) -> int:
    """Return the position after the parenthesis that closes the one at ``start``, as far as it is near."""
    depth = 0
    for position in range(start, min(len(code), start + _MAX_PARAMETERS)):
        depth += (code[position] == "(") - (code[position] == ")")
        if depth == 0:
            return position + 1
    return min(len(code), start + _MAX_PARAMETERS)
