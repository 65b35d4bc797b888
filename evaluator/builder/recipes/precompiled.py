"""The precompiled recipe and the instantiated one: C++ extensions with torch's own commands and a precompiled header.

Each uses one of the two forms of torch's header (``evaluator.builder.recipes.headers``). Torch-free.

``python -m evaluator.builder.recipes.precompiled FD``: see ``evaluator.builder.recipes.workplace``. The files and
commands are torch's (``evaluator.builder.recipes.commands``), to the letter. The environment tells the compiler the
folder of the precompiled header. So its message about a candidate's mistake is the message of the plain recipe, and
counts. A failure that may come from the header is refused.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from evaluator.builder.diagnostics import first_error
from evaluator.builder.recipes.commands import TorchCommands
from evaluator.builder.recipes.headers import COMMANDS_FILE, header_folder, shadowing_name
from evaluator.builder.recipes.workplace import Task, begin, deliver, fail, refuse, run_ninja, succeed
from evaluator.builder.resources import ResourceReader, asks_itself

__all__ = ["main"]

# Compilers' messages about faults of their own, or of an input other than the candidate's sources.
_SUSPICIOUS: Final = ("internal compiler error", "out of memory", "Killed", ".gch", "PCH file")


def main(library_fd: int) -> None:
    """Build once, or refuse."""
    task = begin()
    try:
        library = _build(task)
    except Exception as error:  # noqa: BLE001 - whatever it is, the next recipe may do better
        refuse(f"{type(error).__name__}: {error}")
    if not library.is_file() or library.read_bytes()[:4] != b"\x7fELF":
        refuse("no library came out")
    deliver(library, library_fd)
    succeed()


def _build(task: Task) -> Path:
    request, directory = task.request, task.directory
    if task.prepared is None:
        refuse("nothing is prepared")
    headers = header_folder(task.prepared, request["extra_cflags"])
    if headers is None:
        refuse(f"no header is precompiled for the flags {' '.join(request['extra_cflags'])}")
    commands = TorchCommands.from_json(json.loads((task.prepared / COMMANDS_FILE).read_text()))
    sources = _write_sources(commands, request, directory)
    words = [word for flag in request["extra_cflags"] for word in flag.split()]
    folders = [*request["extra_include_paths"], *(word[2:] for word in words if word.startswith("-I"))]
    shadowing = shadowing_name(task.prepared, [directory / folder.strip() for folder in folders])
    if shadowing is not None:
        refuse(f"torch's header might include the candidate's {shadowing}")
    (directory / "build.ninja").write_text(commands.ninja_text(request, directory, sources))
    try:
        # GCC takes the folders in it as if the last -I named them: before torch's own folders.
        run_ninja(
            [],
            directory,
            reader=ResourceReader(),
            quiet=not asks_itself(request["extra_cuda_cflags"]),
            environment={"CPATH": str(headers)},
        )
    except subprocess.CalledProcessError as error:
        signs = (*_SUSPICIOUS, str(task.prepared))
        if first_error(error.output, str(directory)) is None or any(sign in error.output for sign in signs):
            refuse("the compiler failed, and not by a mistake in the sources alone")
        fail()
    return directory / f"{request['name']}.so"


def _write_sources(commands: TorchCommands, request: dict[str, Any], directory: Path) -> list[str]:
    """Write the sources, and return their names in torch's order."""
    for name, text in (*request["headers"], *request["files"]):
        (directory / name).write_text(text)
    if request["files"]:
        return [name for name, _ in request["files"]]
    (directory / "main.cpp").write_text(commands.main_text(request))
    return ["main.cpp"]


if __name__ == "__main__":
    main(int(sys.argv[1]))
