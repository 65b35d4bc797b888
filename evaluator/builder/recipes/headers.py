"""torch's C++ header, precompiled by GCC, and torch's commands for an extension. Torch-free.

The header is the same for every C++ extension, and reading it takes most of a build's time. GCC reads a precompiled
header in its place only where it can prove that the result is the same. That takes the same compiler, options and
macros, and nothing before it. Otherwise it reads the text. The header has to be compiled with the flags of its later
use. GCC would accept another level of optimization, and generate other code for the header's functions.

There are two forms of it. With the form that GCC makes by itself, a build has the same instructions as a build without
it. With the header's templates instantiated ahead (``evaluator.builder.recipes.instantiating``), each build takes some
4 s less. The compiler, its options and all sources are the same. But the compiler meets the header's functions in
another order, and may decide otherwise which of them to inline into each other.
"""

from __future__ import annotations

import json
import shlex
import shutil
import tempfile
import time
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from evaluator.builder.recipes.commands import MARKS, TorchCommands
from evaluator.builder.recipes.instantiating import PLUGIN_TEXT, WHOLE_TEXT, Plugin, plugin_headers
from evaluator.builder.recipes.preparation import (
    Preparation,
    PreparationFailed,
    Tell,
    ask_torch,
    compile_each,
    run_tool,
    toolchain_facts,
    torch_folder,
)
from evaluator.builder.request import BuildRequest
from evaluator.devices.discovery import compiler_versions

__all__ = ["COMMANDS_FILE", "INSTANTIATED_HEADERS", "PRECOMPILED_HEADERS", "header_folder", "shadowing_name"]

COMMANDS_FILE: Final = "commands.json"
"""The file with ``TorchCommands``, in the prepared folder."""

_INCLUDED_FILE: Final = "included.json"
_HEADER: Final = "torch/extension.h"
_VARIANTS: Final[Mapping[frozenset[str], str]] = {
    frozenset(): "default",
    frozenset({"-O2"}): "O2",
    frozenset({"-O3"}): "O3",
}
"""The flags that candidates usually build with. Each header takes 0.8 to 1 GB."""
_NEUTRAL: Final = ("", "-w", "-fPIC", "-std=c++20")
_NEUTRAL_PREFIXES: Final = ("-D", "-I", "-W")
_NOT_NEUTRAL: Final = ("-Wa,", "-Wl,", "-Wp,")
_WORD_CHARACTERS: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_+=.,/:-")
_COMPILE_BYTES: Final = 3 * 2**30  # measured: 1.6 GB, and 2.9 GB with the templates


def header_folder(prepared: Path, flags: Iterable[str]) -> Path | None:
    """Return the header folder to search ahead of torch's, where one was prepared for these flags; else ``None``.

    Flags for macros, folders and warnings do not count: GCC checks those itself.
    """
    kept: set[str] = set()
    for word in (word for flag in flags for word in flag.split()):
        # The shell would change any other character.
        neutral = word.startswith(_NEUTRAL_PREFIXES) and not word.startswith(_NOT_NEUTRAL) and len(word) > 2
        if not set(word) <= _WORD_CHARACTERS:
            return None
        if not neutral and word not in _NEUTRAL:
            kept.add(word)
    variant = _VARIANTS.get(frozenset(kept))
    return None if variant is None else prepared / "headers" / variant


def shadowing_name(prepared: Path, folders: Iterable[Path]) -> str | None:
    """Return a name in ``folders`` that torch's header might include in the place of its own file, or ``None``.

    GCC does not check for that. Names alone are compared: one too many costs time, and nothing else.
    """
    names = set(json.loads((prepared / _INCLUDED_FILE).read_text()))
    found = {path.name for folder in folders if folder.is_dir() for path in folder.iterdir()}
    return min(found & names, default=None)


def _missing(environment: Mapping[str, str]) -> str | None:
    version = compiler_versions()["compiler"]
    if version is None:
        return "a C++ compiler"
    if "clang" in version.lower():
        return f"GCC ({environment.get('CXX', 'c++')} is clang)"
    return None


def _missing_for_plugin(environment: Mapping[str, str]) -> str | None:
    missing = _missing(environment)
    if missing is None and plugin_headers(environment) is None:
        return "GCC's headers for plugins (Debian and Ubuntu: gcc-$(c++ -dumpversion)-plugin-dev)"
    return missing


def _facts(environment: Mapping[str, str]) -> dict[str, Any]:
    return {**toolchain_facts(environment), "variants": sorted(_VARIANTS.values())}


def _facts_with_plugin(environment: Mapping[str, str]) -> dict[str, Any]:
    return {**_facts(environment), "plugin": PLUGIN_TEXT, "whole": WHOLE_TEXT}


def _make(folder: Path, environment: Mapping[str, str], tell: Tell, *, instantiating: bool) -> None:
    commands = _ask_torch(environment)
    with tempfile.TemporaryDirectory(prefix="kerneljudge-plugin-") as place:
        plugin = Plugin(Path(place), environment) if instantiating else None
        _make_variants(commands, folder, environment, plugin, tell)


def _make_variants(
    commands: TorchCommands, folder: Path, environment: Mapping[str, str], plugin: Plugin | None, tell: Tell
) -> None:
    (folder / COMMANDS_FILE).write_text(json.dumps(commands.to_json()))
    (folder / _INCLUDED_FILE).write_text(json.dumps(_included_names(commands, folder, environment)))
    for variant in _VARIANTS.values():
        header = folder / "headers" / variant / _HEADER
        header.parent.mkdir(parents=True)
        # For a source that includes it once more: GCC looks in the folder of the first one.
        shutil.copy2(torch_folder() / "include" / _HEADER, header)

    def compile_one(flags: frozenset[str]) -> None:
        begin = time.monotonic()
        header = folder / "headers" / _VARIANTS[flags] / f"{_HEADER}.gch"
        _compile(commands, sorted(flags), header, environment, plugin)
        what = " ".join([_HEADER, *sorted(flags)])
        tell(f"{what}: {header.stat().st_size / 1e6:.0f} MB, {time.monotonic() - begin:.0f} s")

    compile_each(compile_one, _VARIANTS, bytes_each=_COMPILE_BYTES)


def _ask_torch(environment: Mapping[str, str]) -> TorchCommands:
    try:
        return TorchCommands.from_json(ask_torch("evaluator.builder.recipes.template", environment))
    except ValueError as error:
        raise PreparationFailed(f"torch's commands cannot be read: {error}") from error


def _compile(
    commands: TorchCommands, flags: list[str], header: Path, environment: Mapping[str, str], plugin: Plugin | None
) -> None:
    """Compile the header for ``flags``, and have the compiler prove that it takes it."""
    command = _command(commands, flags)
    source = torch_folder() / "include" / _HEADER
    if plugin is None:
        run_tool([*command, "-x", "c++-header", str(source), "-o", str(header)], environment, header.parent)
    else:
        plugin.precompile(command, source, header, environment)
    probe = header.parent / "probe.cpp"
    probe.write_text(f"#include <{_HEADER}>\n" * 2)
    folder = header.parent.parent
    probing = [*command, "-DTORCH_EXTENSION_NAME=probe", "-H", "-fsyntax-only", str(probe)]
    done = run_tool(probing, {**environment, "CPATH": str(folder)}, folder)
    probe.unlink()
    if f"! {header}" not in done.stderr.splitlines():
        raise PreparationFailed(f"the compiler does not take the header that it has precompiled ({' '.join(flags)})")


def _command(commands: TorchCommands, flags: Iterable[str]) -> list[str]:
    """The compiler with torch's flags and these, and without the extension's name: torch's headers do not use it."""
    request = BuildRequest(name=MARKS.name, extra_cflags=tuple(flags))
    lines = commands.ninja_text(vars(request), Path("/"), ["main.cpp"]).split("\n")
    variables = dict(line.split(" = ", 1) for line in lines if not line.startswith(" ") and " = " in line)
    words = shlex.split(variables["cflags"])
    return [*shlex.split(variables["cxx"]), *(word for word in words if not word.startswith("-DTORCH_EXTENSION_NAME="))]


def _included_names(commands: TorchCommands, folder: Path, environment: Mapping[str, str]) -> list[str]:
    """Return the names of every file that torch's header includes, and of the folders that these are in."""
    source = torch_folder() / "include" / _HEADER
    listed = run_tool([*_command(commands, ()), "-M", str(source)], environment, folder).stdout
    files = listed.replace("\\\n", " ").partition(":")[2].split()
    return sorted({part for file in files for part in Path(file).parts})


INSTANTIATED_HEADERS: Final = Preparation(
    name="instantiated",
    gain="C++ extensions build three to five times as fast",
    missing=_missing_for_plugin,
    facts=_facts_with_plugin,
    make_in=partial(_make, instantiating=True),
)

PRECOMPILED_HEADERS: Final = Preparation(
    name="precompiled",
    gain="C++ extensions build two and a half times as fast",
    missing=_missing,
    facts=_facts,
    make_in=partial(_make, instantiating=False),
)
