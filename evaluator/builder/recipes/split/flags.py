"""A candidate's own compiler flags: which of them the split recipe knows, and the compiler that each concerns.

nvcc gets every flag of ``extra_cuda_cflags`` as it is. Flags that nvcc would hand on to the host's compiler go to
clang, too. A flag that is not listed here is refused, because its effect on a precompiled header or on the host's side
is not known.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from evaluator.builder.recipes.split.refused import Refused

__all__ = ["HostFlags", "cuda_host_flags", "cxx_flags", "link_flags", "names_standard", "split_words"]

_SHELL: Final = frozenset("$;|&<>()*?~`#\n\r!{}[]\\")
_LEVELS: Final = {"-O", "-O0", "-O1", "-O2", "-O3"}
# Macros that headers of torch, CUDA or the system may ask for: they are compiled already.
_RESERVED_MACROS: Final = (
    "_",
    "TORCH",
    "C10",
    "AT_",
    "CUDA",
    "USE_CUDA",
    "USE_ROCM",
    "PYBIND",
    "PY",
    "NDEBUG",
    "GLOG",
    "FMT",
    "STRIP",
)
_HALF_MACROS: Final = ("__CUDA_NO_HALF", "__CUDA_NO_BFLOAT16")

_DEVICE_ALONE: Final = {
    "--use_fast_math",
    "-use_fast_math",
    "--expt-relaxed-constexpr",
    "-expt-relaxed-constexpr",
    "--expt-extended-lambda",
    "-expt-extended-lambda",
    "--extended-lambda",
    "-extended-lambda",
    "-lineinfo",
    "--generate-line-info",
    "--resource-usage",
    "-res-usage",
    "--restrict",
    "-restrict",
    "--extra-device-vectorization",
    "-extra-device-vectorization",
    "-w",
    "--disable-warnings",
    "-v",
    "--verbose",
    "-allow-unsupported-compiler",
    "--allow-unsupported-compiler",
}
"""nvcc's flags that mean nothing to the host's side."""
_DEVICE_ASSIGNED: Final = {
    "-ftz",
    "--ftz",
    "-prec-div",
    "--prec-div",
    "-prec-sqrt",
    "--prec-sqrt",
    "-fmad",
    "--fmad",
    "-maxrregcount",
    "--maxrregcount",
    "-arch",
    "--gpu-architecture",
    "-code",
    "--gpu-code",
    "-gencode",
    "--generate-code",
    "-Xptxas",
    "--ptxas-options",
    "-diag-suppress",
    "--diag-suppress",
    "-diag_suppress",
    "-Xcudafe",
    "-t",
    "--threads",
}
"""nvcc's flags that mean nothing to the host's side, with a value after ``=`` or as the next word."""


@dataclass(frozen=True)
class HostFlags:
    """``level``: ``-O1`` … as given, or ``None``. ``standard``: ``c++17`` …, or ``None``. ``options``: the rest."""

    level: str | None
    standard: str | None
    options: tuple[str, ...]


def split_words(flags: Iterable[str]) -> list[str]:
    """Split flags as a shell would: torch writes them into a command line. Raises ``Refused``."""
    line = " ".join(flag.strip() for flag in flags)
    if _SHELL & set(line):
        raise Refused("a flag has characters that a shell would interpret")
    try:
        return shlex.split(line)
    except ValueError as error:
        raise Refused(f"flags are not to be read: {error}") from error


def cxx_flags(flags: Sequence[str]) -> HostFlags:
    """Read ``extra_cflags``, which concern ``main.cpp``. Raises ``Refused``."""
    return _host(iter(split_words(flags)))


def names_standard(flags: Iterable[str]) -> bool:
    """Whether torch finds a language standard in ``extra_cuda_cflags``; otherwise it adds its own, which counts."""
    return any(flag.startswith("-std=") for flag in flags)


def cuda_host_flags(flags: Sequence[str]) -> HostFlags:
    """Return the part of ``extra_cuda_cflags`` that concerns the host's side. Raises ``Refused``."""
    words = iter(split_words(flags))
    host: list[str] = []
    for word in words:
        name, assigned, value = word.partition("=")
        if word in _DEVICE_ALONE or word.startswith("-Xptxas="):
            continue
        if name in _DEVICE_ASSIGNED:
            if not assigned:
                _next(words, word)
            continue
        if name in ("-Xcompiler", "--compiler-options"):
            handed_on = (value if assigned else _next(words, word)).split(",")
            if any(flag.startswith(("-std", "--std")) for flag in handed_on):
                raise Refused("the language of the host's side is not that of the device's")
            host += handed_on
        elif name in ("--std", "-std"):
            if not names_standard(flags):
                raise Refused("the language is named where torch does not look for it")
            host.append(f"-std={value if assigned else _next(words, word)}")
        elif name == "--optimize":
            host.append(f"-O{value if assigned else _next(words, word)}")
        elif word in ("-D", "-U", "-I", "-isystem"):
            host += [word, _next(words, word)]
        elif name in ("--define-macro", "--undefine-macro", "--include-path"):
            short = {"--define-macro": "-D", "--undefine-macro": "-U", "--include-path": "-I"}[name]
            host += [short, value if assigned else _next(words, word)]
        else:
            host.append(word)
    found = _host(iter(host))
    if names_standard(flags) and found.standard is None:
        raise Refused("torch names a language that is none")
    return found


def link_flags(flags: Sequence[str]) -> list[str]:
    """Return ``extra_ldflags``. Raises ``Refused`` for flags other than libraries and their folders."""
    words = split_words(flags)
    for word in words:
        if not word.startswith(("-l", "-L", "-Wl,-rpath")):
            raise Refused(f"the linker's flag {word}")
    return words


def _host(words: Iterator[str]) -> HostFlags:
    level = standard = None
    options: list[str] = []
    for word in words:
        if word in _LEVELS:
            level = "-O1" if word == "-O" else word
        elif word.startswith("-std="):
            standard = word.removeprefix("-std=")
        elif word[:2] in ("-D", "-U"):
            macro = word[2:] or _next(words, word)
            if not macro.startswith(_HALF_MACROS):
                # Operators of half precision are made for device code; the headers are compiled without.
                options.append(word[:2] + _free_macro(macro))
        elif word.startswith(("-I", "-isystem")):
            name = "-I" if word.startswith("-I") else "-isystem"
            options += [name, word.removeprefix(name) or _next(words, word)]
        elif word in ("-fPIC", "-w", "-pipe") or (
            word.startswith("-W") and not word.startswith(("-Wl,", "-Wp,", "-Wa,"))
        ):
            continue
        else:
            raise Refused(f"the flag {word}")
    return HostFlags(level, standard, tuple(options))


def _free_macro(macro: str) -> str:
    if macro.startswith(_RESERVED_MACROS):
        raise Refused(f"the macro {macro}, which may change headers that are compiled already")
    return macro


def _next(words: Iterator[str], before: str) -> str:
    value = next(words, None)
    if value is None:
        raise Refused(f"nothing follows the flag {before}")
    return value
