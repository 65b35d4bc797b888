"""The plain recipe: torch's own build, up to the finished library and no further.

``python -m evaluator.builder.recipes.plain FD``: see ``evaluator.builder.recipes.workplace``. torch's own
``load_inline`` and ``load`` do the work, so that every argument has its meaning in this version of torch. Only the step
that would load the library into this process is taken out. This recipe refuses nothing.

A machine without CUDA's libraries (a CPU build of torch) compiles CUDA sources, which finds every compile error, and
leaves out the link step.
"""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.utils.cpp_extension as torch_extension

from evaluator.builder.diagnostics import kernel_names
from evaluator.builder.recipes.generated import GENERATED_HEADER, GENERATED_TEXT
from evaluator.builder.recipes.workplace import begin, deliver, fail, run_ninja, succeed
from evaluator.builder.resources import ASKING, ResourceReader, asks_itself

__all__ = ["main"]


def main(library_fd: int) -> None:
    """Build once; exit status 0 where everything asked for was compiled, 1 otherwise."""
    task = begin()
    request, directory = task.request, task.directory
    os.environ |= ASKING
    if task.line_information:
        os.environ["NVCC_APPEND_FLAGS"] += " -lineinfo"
    uses_cuda = request.pop("uses_cuda")
    files = request.pop("files")
    for name, text in request.pop("headers"):
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(text)
    can_link = not uses_cuda or torch.version.cuda is not None
    reader = ResourceReader()
    quiet = not asks_itself(request["extra_cuda_cflags"])
    torch_extension._import_module_from_library = lambda *_args: None
    torch_extension.remove_extension_h_precompiler_headers = lambda: None
    # It takes any failure for a ninja that is missing, and blames the request. Our own call says what it lacks.
    torch_extension.verify_ninja_availability = lambda: None
    if can_link:
        torch_extension._run_ninja_build = partial(_run_ninja, reader, quiet)
    else:
        # A CPU build of torch does not look for CUDA's compiler by itself.
        torch_extension.CUDA_HOME = torch_extension._find_cuda_home()
        torch_extension._run_ninja_build = partial(_compile_only, reader, quiet)
        request["extra_include_paths"] = [*request["extra_include_paths"], str(_write_shims(directory))]
    try:
        if files:
            _load(request, files, directory)
        else:
            _load_inline(request, directory)
    except subprocess.CalledProcessError as error:
        if error.cmd[0] != "ninja":  # a compiler that torch asks for its version
            fail(f"{error.cmd[0]} does not run", toolchain=True)
        fail()
    except (OSError, MemoryError) as error:
        fail(f"{type(error).__name__}: {error}", toolchain=True)
    except Exception as error:  # noqa: BLE001 - torch refuses the request: the candidate's author must read why
        fail(f"{type(error).__name__}: {error}")
    kernels: list[str] = []
    if can_link:
        library = directory / f"{request['name']}.so"
        kernels = kernel_names(library) if uses_cuda else []
        deliver(library, library_fd)
    succeed(linked=can_link, kernels=kernels, resources=reader.kernels)


def _load_inline(request: dict[str, Any], directory: Path) -> None:
    functions = request["functions"]
    torch_extension.load_inline(  # type: ignore[no-untyped-call]
        name=request["name"],
        cpp_sources=list(request["cpp_sources"]),
        cuda_sources=list(request["cuda_sources"]),
        functions=None if functions is None else dict(functions),
        extra_cflags=list(request["extra_cflags"]),
        extra_cuda_cflags=list(request["extra_cuda_cflags"]),
        extra_ldflags=list(request["extra_ldflags"]),
        extra_include_paths=list(request["extra_include_paths"]),
        build_directory=str(directory),
        with_cuda=request["with_cuda"],
        with_pytorch_error_handling=request["with_pytorch_error_handling"],
        no_implicit_headers=request["no_implicit_headers"],
        verbose=False,
    )


def _load(request: dict[str, Any], files: list[list[str]], directory: Path) -> None:
    for name, text in files:
        (directory / name).write_text(text)
    torch_extension.load(
        name=request["name"],
        sources=[str(directory / name) for name, _ in files],
        extra_cflags=list(request["extra_cflags"]),
        extra_cuda_cflags=list(request["extra_cuda_cflags"]),
        extra_ldflags=list(request["extra_ldflags"]),
        extra_include_paths=list(request["extra_include_paths"]),
        build_directory=str(directory),
        with_cuda=request["with_cuda"],
        verbose=False,
    )


def _run_ninja(
    reader: ResourceReader,
    quiet: bool,
    build_directory: str,
    verbose: bool,  # noqa: ARG001 - torch's signature
    error_prefix: str,  # noqa: ARG001
) -> None:
    run_ninja([], Path(build_directory), reader=reader, quiet=quiet)


def _compile_only(
    reader: ResourceReader,
    quiet: bool,
    build_directory: str,
    verbose: bool,  # noqa: ARG001 - torch's signature
    error_prefix: str,  # noqa: ARG001
) -> None:
    targets = subprocess.run(
        ["ninja", "-t", "targets", "all"], cwd=build_directory, check=True, capture_output=True, text=True
    ).stdout
    objects = [line.split(":")[0] for line in targets.splitlines() if line.split(":")[0].endswith(".o")]
    run_ninja(objects, Path(build_directory), reader=reader, quiet=quiet)


def _write_shims(directory: Path) -> Path:
    """Write the one CUDA header that CPU builds of torch lack, because their build did not generate it."""
    shims = directory / "shims"
    header = shims / GENERATED_HEADER
    header.parent.mkdir(parents=True)
    header.write_text(GENERATED_TEXT)
    return shims


if __name__ == "__main__":
    main(int(sys.argv[1]))
