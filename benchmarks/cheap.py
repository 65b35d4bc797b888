"""Sources with known verdicts and a low cost, in any number, no two the same."""

from __future__ import annotations

from typing import Final

from tests.corpus import load_cases

__all__ = ["broken", "honest", "instantly_wrong", "raising"]

_INSTANTLY_WRONG: Final = ("x = ({number}", "def forward(x):\n    return x  # {number}\n", "")
"""A syntax error, no ``ModelNew``, and an empty answer. None of them needs a process."""
_BROKEN_EXTENSION: Final = """
from torch.utils.cpp_extension import load_inline
load_inline(name="broken", cpp_sources="#error candidate {number}", no_implicit_headers=True)


class ModelNew:
    pass
"""
_RAISING: Final = "raise ImportError('candidate {number}')\n\n\nclass ModelNew:\n    pass\n"


def honest(count: int) -> list[tuple[str, str]]:
    """Return (source, verdict) of candidates for ``relu`` that pass."""
    source = next(case for case in load_cases() if case.name == "relu_honest_plain").source
    return [(f"{source}# {number}\n", "passed") for number in range(count)]


def raising(count: int) -> list[tuple[str, str]]:
    """Return (source, verdict) of candidates that cannot be imported."""
    return [(_RAISING.format(number=number), "load_error") for number in range(count)]


def broken(count: int) -> list[tuple[str, str]]:
    """Return (source, verdict) of candidates whose extension cannot be compiled."""
    return [(_BROKEN_EXTENSION.format(number=number), "compile_error") for number in range(count)]


def instantly_wrong(count: int) -> list[tuple[str, str]]:
    """Return (source, verdict) of texts that are no candidates. A third of them is empty, and so the same."""
    return [
        (_INSTANTLY_WRONG[number % len(_INSTANTLY_WRONG)].format(number=number), "invalid_source")
        for number in range(count)
    ]
