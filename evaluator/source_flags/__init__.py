"""Advice about a candidate's source: places that a reviewer would want to see. Torch-free.

The source is parsed, never executed. Rules read the syntax tree, so words in comments and docstrings mean nothing to
them. Each is silent where it cannot be certain: a flag reports a fact, not a possibility. An author can hide something
from them; that is why flags never decide a verdict.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Final

from evaluator.candidates.candidate import parse_quietly
from evaluator.flags import Flag, FlagKind
from evaluator.source_flags import fallbacks, kernels, patches, precision, shortcuts, surroundings
from evaluator.source_flags.extensions import find_extensions
from evaluator.source_flags.module import Module, TooMuchToRead
from kerneljudge.terms.limits import MAX_SOURCE_BYTES

__all__ = ["Flag", "FlagKind", "advise"]

_MAX_FLAGS: Final = 50
"""A reader does not read more than this, and each is stored."""


def advise(source: str, *, of_precision: str = "float32", tf32: bool = True) -> tuple[Flag, ...]:
    """Return flags for ``source``, by line, judged on a problem of ``of_precision``; none where it cannot be parsed.

    ``tf32``: whether convolutions begin with TF32 allowed, as in PyTorch's defaults, so that to allow it is no flag.

    A source larger than a candidate may be is not examined.
    """
    if len(source) > MAX_SOURCE_BYTES:
        return ()
    try:
        module = Module(parse_quietly(source))
    except TooMuchToRead:
        return (Flag(FlagKind.CONCEALS_SOURCE, None, "more than anybody could read, so nothing looked through it"),)
    except (SyntaxError, ValueError, OverflowError, RecursionError, MemoryError):
        return ()
    found = {flag for rule in _rules(module, of_precision, tf32=tf32) for flag in _guarded(rule)}
    return tuple(sorted(found, key=lambda flag: (flag.line or 0, flag.kind, flag.message))[:_MAX_FLAGS])


def _rules(module: Module, of_precision: str, *, tf32: bool) -> Iterator[Callable[[], Iterator[Flag]]]:
    extensions = cache(lambda: find_extensions(module))
    yield lambda: kernels.flags(module, extensions())
    yield lambda: shortcuts.flags(module)
    yield lambda: fallbacks.flags(module)
    yield lambda: precision.flags(module, extensions(), of_precision, tf32=tf32)
    yield lambda: surroundings.flags(module, extensions())
    yield lambda: patches.flags(module, extensions())


def _guarded(rule: Callable[[], Iterator[Flag]]) -> list[Flag]:
    try:
        return list(rule())
    except Exception:  # noqa: BLE001 - a source that a rule cannot cope with must not cost the evaluation
        return []
