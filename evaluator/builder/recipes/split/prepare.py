"""Precompiled headers for the split recipe: made once for a toolchain, then used by every build.

A *lean* header has the contents of ``torch/types.h``. Its inline functions are compiled once, too, into an archive that
is linked to their users. A *full* header has all of ``torch/extension.h``, for sources that need it, and takes longer
to use.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Final, Literal, TypeAlias

from evaluator.builder.recipes.generated import GENERATED_HEADER, GENERATED_TEXT
from evaluator.builder.recipes.preparation import compile_each
from evaluator.builder.recipes.split.headers import HOST_SHIM, PRECOMPILED
from evaluator.builder.recipes.split.refused import Refused
from evaluator.builder.recipes.split.toolchain import SplitToolchain

__all__ = ["Header", "Side", "clang_command", "find_header", "is_prepared", "prepare"]

Side: TypeAlias = Literal["host", "main"]
"""``host``: the host's side of CUDA sources. ``main``: C++."""

_READY: Final = "ready"
_SHADOWED: Final = ("torch/extension.h", "torch/all.h", "torch/torch.h")
_PLACEHOLDER: Final = b"kerneljudge: the device code comes here"
_OPTIMIZED: Final = "-O1"
_ABI_PROBE: Final = "#include <pybind11/detail/internals.h>\nkerneljudge_abi PYBIND11_INTERNALS_ID\n"
_TIMEOUT_S: Final = 900
_COMPILE_BYTES: Final = 3 * 2**29  # measured: 1.3 GiB


@dataclass(frozen=True)
class Header:
    """A precompiled header. ``archive`` has its inline functions; ``None``: each user compiles them."""

    precompiled: Path
    archive: Path | None
    is_lean: bool


class _Rejected(Refused):
    """The compiler has found a mistake."""


# The header that a machine without CUDA's libraries lacks, because it has none of the headers of cuBLAS.
_DISPENSABLE: Final = "host_streams"


def prepare(toolchain: SplitToolchain, folder: Path) -> tuple[str, ...]:
    """Make the files that ``recipe.build`` needs in ``folder``, which must not be changed or moved afterwards.

    Returns those of ``toolchain.standards`` that they were made for: torch's own, and others if its headers allow them.
    Raises ``Refused`` where clang cannot read torch's headers, or would not share pybind11's types with torch.
    """
    if not is_prepared(toolchain, folder):
        _make(toolchain, folder)
    return tuple(standard for standard in toolchain.standards if (folder / standard).is_dir())


def _make(toolchain: SplitToolchain, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    for name, text in _texts(toolchain).items():
        path = folder / "include" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for name in _SHADOWED:
        path = folder / "shadow" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("#pragma once\n")
    (folder / "placeholder").write_bytes(_PLACEHOLDER)
    if toolchain.mold is not None:
        (folder / "linker").mkdir()
        (folder / "linker" / "ld").symlink_to(toolchain.mold)
    _check_abi(toolchain, folder)
    wanted = [(standard, name) for standard in toolchain.standards for name in PRECOMPILED]
    made = compile_each(lambda which: _precompile(toolchain, folder, *which), wanted, bytes_each=_COMPILE_BYTES)
    # A standard has all of its headers or none: lean ones alone would build sources that torch refuses.
    lacking = {standard for (standard, _), complete in zip(wanted, made, strict=True) if not complete}
    for standard in lacking:
        shutil.rmtree(folder / standard)
    (folder / _READY).write_text(_stamp(toolchain, folder))


def is_prepared(toolchain: SplitToolchain, folder: Path) -> bool:
    """Whether ``folder`` holds the files of ``prepare``, made there and for exactly this toolchain."""
    try:
        return (folder / _READY).read_text() == _stamp(toolchain, folder)
    except OSError:
        return False


def find_header(folder: Path, side: Side, standard: str, variant: str = "") -> Header:
    """Find the precompiled header for ``side``. Raises ``Refused`` where there is none for ``standard``.

    ``variant``: empty for the lean one; ``python`` with pybind11; ``streams`` with ``ATen/cuda/CUDAContext.h``, where
    this machine has one; or ``full``.
    """
    folder = folder / standard
    name = f"{side}_{variant}" if variant and (folder / f"{side}_{variant}.pch").exists() else side
    archive = folder / f"lib{name}.a"
    if not (folder / f"{name}.pch").exists():
        raise Refused(f"torch's headers are not precompiled for {standard}")
    return Header(folder / f"{name}.pch", archive if archive.exists() else None, variant != "full")


def clang_command(toolchain: SplitToolchain, folder: Path, side: Side, standard: str) -> list[str]:
    """Return clang with torch's arguments, as a header was precompiled and as it must be used."""
    flags = toolchain.cxx_flags if side == "main" else tuple(_host_flags(toolchain.cuda_flags))
    command = [
        toolchain.clang,
        *(part for folder in toolchain.cxx_folders for part in ("-stdlib++-isystem", folder)),
        f"-std={standard}",
        # With the rules of C++20's modules clang takes the overloads for host and device for contradictions.
        *("-Xclang", "-fno-cxx-modules"),
        *toolchain.mangling_flags,
        "-fPIC",
        f"-I{folder / 'include'}",
        *flags,
    ]
    if side == "main":
        return command
    return [
        *command,
        *("-x", "cuda", "--cuda-host-only", "--cuda-gpu-arch=sm_80", f"--cuda-path={toolchain.cuda_folder}"),
        "--no-cuda-version-check",
        f"-D__CUDA_ARCH_LIST__={_architecture_list(toolchain.architecture_flags)}",
        *("-isystem", f"{toolchain.cuda_folder}/include", "-isystem", f"{toolchain.cuda_folder}/include/cccl"),
    ]


def _architecture_list(flags: Sequence[str]) -> str:
    """Return ``__CUDA_ARCH_LIST__`` as nvcc defines it: headers of CUB give their kernels names by it."""
    numbers = set()
    for flag in flags:
        digits = "".join(takewhile(str.isdigit, flag.partition("compute_")[2]))
        if digits:
            numbers.add(10 * int(digits))
    return ",".join(map(str, sorted(numbers)))


def _stamp(toolchain: SplitToolchain, folder: Path) -> str:
    """Hash everything that decides the contents of ``folder``; precompiled headers do not work at another place."""
    place = folder.resolve()
    sides: tuple[Side, ...] = ("host", "main")
    commands = [clang_command(toolchain, place, side, name) for side in sides for name in toolchain.standards]
    parts = [toolchain.key, _texts(toolchain), PRECOMPILED, commands, _OPTIMIZED, _PLACEHOLDER.decode()]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _host_flags(flags: Sequence[str]) -> list[str]:
    """Return the flags that torch passes to nvcc and clang understands: macros and folders."""
    found: list[str] = []
    words = iter(flags)
    for word in words:
        if word in ("-isystem", "-I", "-D"):
            found += [word, next(words)]
        elif word.startswith(("-isystem", "-I", "-D")):
            found.append(word)
    return found


def _texts(toolchain: SplitToolchain) -> dict[str, str]:
    texts = {"kerneljudge_host_shim.h": HOST_SHIM}
    texts |= dict.fromkeys(toolchain.missing_headers, "")
    folders = [Path(flag.removeprefix("-isystem")) for flag in toolchain.cuda_flags]
    if not any((path / GENERATED_HEADER).exists() for path in folders):
        # CPU builds of torch lack one of CUDA's headers, because their build did not make it.
        texts[GENERATED_HEADER] = GENERATED_TEXT
    return texts


def _precompile(toolchain: SplitToolchain, folder: Path, standard: str, name: str) -> bool:
    """Whether ``standard`` can be precompiled; a dispensable header may be left out. Raises ``Refused``."""
    side: Side = "main" if name.startswith("main") else "host"
    variant = name.partition("_")[2]
    place = folder / standard
    place.mkdir(exist_ok=True)
    source, header, compiled = place / f"{name}.h", place / f"{name}.pch", place / f"{name}.o"
    source.write_text(PRECOMPILED[name])
    lean = variant != "full"
    command = clang_command(toolchain, folder, side, standard)
    language = ["-x", "c++-header"] if side == "main" else ["-Xclang", "-emit-pch"]
    ahead = ["-fpch-instantiate-templates", *(["-fpch-codegen"] if lean else [])]
    shadow = [f"-I{folder / 'shadow'}"] if lean else []
    try:
        _run([*command, "-w", *shadow, _OPTIMIZED, *ahead, *language, "-c", str(source), "-o", str(header)])
        if lean:
            sections = ["-ffunction-sections", "-fdata-sections", "-Xclang", "-fno-cxx-modules"]
            _run([toolchain.clang, "-fPIC", "-O2", "-w", *sections, "-c", str(header), "-o", str(compiled)])
            _run(["ar", "rcs", str(place / f"lib{name}.a"), str(compiled)])
            compiled.unlink()
    except _Rejected:
        header.unlink(missing_ok=True)
        if name == _DISPENSABLE:
            return True
        if standard in (toolchain.standard, toolchain.cuda_standard):
            raise
        return False
    return True


def _check_abi(toolchain: SplitToolchain, folder: Path) -> None:
    """Check that clang's extensions share pybind11's types with torch's. Raises ``Refused``.

    pybind11 separates the types of extensions that it takes for builds of incompatible compilers.
    """
    source = folder / "abi.cpp"
    source.write_text(_ABI_PROBE)
    said = [
        [line for line in _run([*command, "-E", "-P", str(source)]).splitlines() if "kerneljudge_abi" in line]
        for command in (
            [*toolchain.cxx, f"-std={toolchain.standard}", *toolchain.cxx_flags],
            clang_command(toolchain, folder, "main", toolchain.standard),
        )
    ]
    if not said[0] or said[0] != said[1]:
        raise Refused("clang's extensions would not share pybind11's types with torch")


def _run(command: Sequence[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=_TIMEOUT_S)
    except (OSError, subprocess.SubprocessError) as error:
        raise Refused(f"{command[0]} does not run: {error}") from error
    if done.returncode:
        # A compiler that the kernel has ended, for want of memory, has another status.
        kind = _Rejected if done.returncode == 1 else Refused
        raise kind("a header of torch's cannot be precompiled", done.stderr)
    return done.stdout
