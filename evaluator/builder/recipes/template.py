"""Asking torch for its commands for a C++ extension: ``python -m evaluator.builder.recipes.template``.

Prints ``TorchCommands`` as a JSON object; the working folder has to be empty. torch's own ``load_inline`` and ``load``
write the files for an extension made of marks; nothing is compiled. They also write the files for two requests without
marks, and the templates have to give the same. Otherwise templates cannot describe this version of torch, and the exit
status is 1, with the reason on standard error.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import torch.utils.cpp_extension as torch_extension

from evaluator.builder.recipes.commands import MARKS, TorchCommands
from evaluator.builder.request import BuildRequest

__all__ = ["main", "written_by_torch"]

_SAMPLES: Final = (
    BuildRequest(name="inline", cpp_sources=("int f();", "int g();"), functions=(("f", "f"), ("g", "a g"))),
    BuildRequest(
        name="loaded",
        files=(("a.cpp", "int f();\n"), ("b.cc", "int g();\n")),
        extra_cflags=("-O3", " -DX='a b' "),
        extra_ldflags=("-lm",),
        extra_include_paths=(".", "/usr/include"),
        with_cuda=False,
    ),
)


def written_by_torch(request: BuildRequest, directory: Path) -> dict[str, str]:
    """Return the files, name to text, that torch writes to ``directory`` for a request; it compiles nothing."""
    torch_extension._run_ninja_build = lambda *_args, **_kwargs: None
    torch_extension._import_module_from_library = lambda *_args: None
    torch_extension.remove_extension_h_precompiler_headers = lambda: None
    shared: dict[str, Any] = {
        "name": request.name,
        "extra_cflags": list(request.extra_cflags),
        "extra_ldflags": list(request.extra_ldflags),
        "extra_include_paths": list(request.extra_include_paths),
        "build_directory": str(directory),
        "with_cuda": request.with_cuda,
    }
    if request.files:
        for name, text in request.files:
            (directory / name).write_text(text)
        torch_extension.load(sources=[str(directory / name) for name, _ in request.files], **shared)
    else:
        torch_extension.load_inline(  # type: ignore[no-untyped-call]
            cpp_sources=list(request.cpp_sources),
            cuda_sources=list(request.cuda_sources),
            functions=None if request.functions is None else dict(request.functions),
            with_pytorch_error_handling=request.with_pytorch_error_handling,
            no_implicit_headers=request.no_implicit_headers,
            **shared,
        )
    # To the letter: reading as text would change line ends.
    found = [path for path in directory.iterdir() if path.name in ("main.cpp", "build.ninja")]
    return {path.name: path.read_bytes().decode() for path in found}


def _templates(folder: Path) -> TorchCommands:
    marked: Mapping[str, Any] = {
        "name": MARKS.name,
        "extra_cflags": (MARKS.cflag,),
        "extra_ldflags": (MARKS.ldflag,),
        "extra_include_paths": (MARKS.include,),
    }
    inline: dict[str, Any] = {"cpp_sources": (MARKS.text,), "functions": ((MARKS.function, MARKS.docstring),)}
    files = _written(BuildRequest(files=((MARKS.source, MARKS.text),), **marked), folder / "files")
    handled = _written(BuildRequest(**marked, **inline), folder / "handled")
    bare = _written(BuildRequest(**marked, **inline, with_pytorch_error_handling=False), folder / "bare")
    return TorchCommands(
        main=handled["main.cpp"],
        main_bare=bare["main.cpp"],
        ninja=files["build.ninja"].replace(str(folder / "files"), MARKS.directory),
    )


def _written(request: BuildRequest, directory: Path) -> dict[str, str]:
    directory.mkdir()
    return written_by_torch(request, directory)


def _difference(commands: TorchCommands, request: BuildRequest, directory: Path) -> str | None:
    """Name the file in which the templates differ from torch, or ``None``."""
    written, fields = _written(request, directory), asdict(request)
    if request.files:
        sources = [name for name, _ in request.files]
    else:
        sources = ["main.cpp"]
        if commands.main_text(fields) != written["main.cpp"]:
            return "main.cpp"
    return None if commands.ninja_text(fields, directory, sources) == written["build.ninja"] else "build.ninja"


def main() -> int:
    folder = Path.cwd()
    commands = _templates(folder)
    for request in _SAMPLES:
        file = _difference(commands, request, folder / request.name)
        if file is not None:
            sys.stderr.write(f"this version of torch writes a {file} that no template can be made of\n")
            return 1
    sys.stdout.write(json.dumps(commands.to_json()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
