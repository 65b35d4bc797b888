"""The split recipe's facts about the machine: tools, folders, and torch's arguments for them."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Final

from evaluator.builder.recipes.split.refused import Refused

__all__ = ["SplitToolchain", "find_clang"]

_CLANGS: Final = ("clang++-19", "clang++-20", "clang++-21", "clang++-18", "clang++")
_ARCHITECTURE_FLAGS: Final = ("-gencode", "-arch")
_MACRO: Final = "-DTORCH_EXTENSION_NAME="
_MISSING_FROM_TOOLKITS: Final = ("texture_fetch_functions.h", "curand_mtgp32_kernel.h")
_TIMEOUT_S: Final = 60
_CLANG_VERSION: Final = re.compile(r"\bclang version (\d+)")
_STANDARDS: Final = ("c++17", "c++20")
"""Candidates often name one of them, whatever torch's default is."""


@dataclass(frozen=True)
class SplitToolchain:
    """The tools and arguments of a build.

    - ``torch``: its version. ``cxx``, ``nvcc``: torch's commands for them.
    - ``cxx_flags``, ``cuda_flags``: torch's arguments, but for the extension's name. The architectures and the
      language standard are kept apart from ``cuda_flags``, because a candidate's own take their place.
    - ``cxx_folders``: the headers of the standard library of ``cxx``, for clang to use the same.
    - ``cuda_folder``: the toolkit that ``nvcc`` belongs to. ``mold`` is ``None`` where it is not installed.
    - ``versions``, of ``cxx``, ``nvcc``, ``clang`` and ``mold``, tell these tools from others of the same name.
    - ``can_link``: a build of torch without CUDA has no libraries to link with.
    """

    torch: str
    cxx: tuple[str, ...]
    nvcc: tuple[str, ...]
    clang: str
    mold: str | None
    cxx_flags: tuple[str, ...]
    cuda_flags: tuple[str, ...]
    architecture_flags: tuple[str, ...]
    standard: str
    cuda_standard: str
    link_flags: tuple[str, ...]
    cxx_folders: tuple[str, ...]
    cuda_folder: str
    versions: tuple[str, ...]
    can_link: bool

    @classmethod
    def collect(cls, facts: Mapping[str, Any], environment: Mapping[str, str]) -> SplitToolchain:
        """Collect torch's facts (``facts.torch_facts``), and the tools that ``environment`` finds.

        Raises ``Refused`` where a tool is missing.
        """
        clang = find_clang(environment)
        if clang is None:
            raise Refused("there is no clang++ on this machine")
        cxx, nvcc = tuple(facts["cxx"]), tuple(facts["nvcc"])
        mold = shutil.which("mold", path=environment.get("PATH"))
        cxx_flags, standard = _apart(facts["cflags"], "-std=")
        cuda_flags, cuda_standard = _apart(facts["cuda_cflags"], "-std=")
        cuda_flags, _ = _apart(cuda_flags, _ARCHITECTURE_FLAGS)
        tools = [
            [*cxx, "--version"],
            [*nvcc, "--version"],
            [clang, "--version"],
            *([[mold, "--version"]] if mold else []),
        ]
        return cls(
            torch=str(facts["torch"]),
            cxx=cxx,
            nvcc=nvcc,
            clang=clang,
            mold=mold,
            cxx_flags=cxx_flags,
            cuda_flags=cuda_flags,
            architecture_flags=tuple(flag for flag in facts["cuda_cflags"] if flag.startswith(_ARCHITECTURE_FLAGS)),
            standard=standard,
            cuda_standard=cuda_standard,
            link_flags=tuple(flag for flag in facts["ldflags"] if flag != "-shared"),
            cxx_folders=_cxx_folders(cxx, environment),
            cuda_folder=_cuda_folder(nvcc, environment),
            versions=tuple(_said([*tool], environment) for tool in tools),
            can_link=facts["cuda"] is not None,
        )

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> SplitToolchain:
        values: dict[str, Any] = {}
        for field in fields(cls):
            value = data[field.name]
            values[field.name] = tuple(value) if isinstance(value, list) else value
        return cls(**values)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def key(self) -> str:
        """The key of precompiled headers and of everything built with this toolchain."""
        return hashlib.sha256(json.dumps(self.to_json(), sort_keys=True).encode()).hexdigest()[:32]

    @property
    def standards(self) -> tuple[str, ...]:
        """The language standards that torch's headers are precompiled for, torch's own first."""
        return tuple(dict.fromkeys((self.standard, self.cuda_standard, *_STANDARDS)))

    @property
    def mangling_flags(self) -> tuple[str, ...]:
        """The flags that make clang name instances of templates as torch's compilers do.

        Since clang 18 a name has the kind of a template's parameter where its arguments do not (``Tn``, as for
        ``Tensor::const_data_ptr<float>`` of torch 2.11). GCC 13, and libraries built by it, do not have it.
        """
        found = _CLANG_VERSION.search(self.versions[2])
        return ("-fclang-abi-compat=17",) if found is not None and int(found[1]) >= 18 else ()

    @property
    def missing_headers(self) -> tuple[str, ...]:
        """Headers that clang includes and that this toolkit does not have."""
        include = Path(self.cuda_folder) / "include"
        return tuple(name for name in _MISSING_FROM_TOOLKITS if not (include / name).exists())


def find_clang(environment: Mapping[str, str]) -> str | None:
    """The clang++ to use, of those that ``environment`` finds."""
    return next(filter(None, (shutil.which(name, path=environment.get("PATH")) for name in _CLANGS)), None)


def _apart(flags: Sequence[str], prefix: str | tuple[str, ...]) -> tuple[tuple[str, ...], str]:
    """Return ``flags`` without the extension's name and flags with ``prefix``; and the value of the last of these."""
    kept = tuple(
        flag for flag in flags if not flag.startswith((_MACRO, *((prefix,) if isinstance(prefix, str) else prefix)))
    )
    taken = [flag for flag in flags if flag.startswith(prefix)]
    return kept, taken[-1].partition("=")[2] if taken else ""


def _said(command: Sequence[str], environment: Mapping[str, str]) -> str:
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT_S,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise Refused(f"{command[0]} does not run: {error}") from error
    return (done.stdout + done.stderr).strip()


def _cxx_folders(cxx: Sequence[str], environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the folders of GCC's C++ standard library, of those that it searches for headers, from ``-v``.

    GCC's own installation folder would do for clang where its headers are at their usual place beside it. A GCC that
    was moved, or is called by a wrapper, has them elsewhere.
    """
    said = _said([*cxx, "-E", "-v", "-x", "c++", os.devnull], environment)
    _, _, after = said.partition("#include <...> search starts here:")
    listed, _, _ = after.partition("End of search list.")
    folders = [line.strip() for line in listed.splitlines()]
    found = tuple(folder for folder in folders if "c++" in Path(folder).parts)
    if not found:
        raise Refused(f"{cxx[0]} does not say where the C++ standard library is")
    return found


def _cuda_folder(nvcc: Sequence[str], environment: Mapping[str, str]) -> str:
    for line in _said([*nvcc, "--dryrun", "-x", "cu", os.devnull], environment).splitlines():
        name, _, value = line.removeprefix("#$ ").partition("=")
        if name == "TOP":
            return str(Path(value).resolve())
    raise Refused(f"{nvcc[0]} does not say where its toolkit is")
