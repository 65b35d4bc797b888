"""Building a CUDA extension in two parts: nvcc compiles the device's side, clang with precompiled headers the host's.

Then the device code is put into the host's object, and everything is linked as torch would link it. Two comparisons
precede the use of a result. The host side's registrations with the CUDA runtime are compared with the device code. The
symbols that it needs are compared with the libraries.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, TypeVar

from evaluator.builder.diagnostics import demangled
from evaluator.builder.recipes.split.flags import (
    HostFlags,
    cuda_host_flags,
    cxx_flags,
    link_flags,
    names_standard,
    split_words,
)
from evaluator.builder.recipes.split.headers import device_prelude
from evaluator.builder.recipes.split.objects import ObjectFile, Registered, registered
from evaluator.builder.recipes.split.prepare import Side, clang_command, find_header, is_prepared
from evaluator.builder.recipes.split.refused import Refused
from evaluator.builder.recipes.split.sources import Sources, sources_of
from evaluator.builder.recipes.split.toolchain import SplitToolchain
from evaluator.builder.recipes.split.units import ANONYMOUS, Units, headers_for, split
from evaluator.builder.request import BuildRequest
from evaluator.builder.resources import ASKING, KernelResources, ResourceReader, asks_itself, short_name

__all__ = ["Plan", "SplitResult", "build", "instances", "plan"]

_STEP_TIMEOUT_S: Final = 600
REPORTING: Final = "-Wl,--no-undefined,--warn-unresolved-symbols,--no-demangle"
"""The options that make a linker report symbols of no library. Its output is not to be used: some linkers put nothing
in such a place, where Python's functions would be found later.
"""
_UNRESOLVED: Final = re.compile(r"undefined (?:symbol|reference)(?: to|:) [`']?([^\s`']+)")
_STREAMS: Final = "ATen/cuda/CUDAContext.h"
_EXTENSION_HEADERS: Final = ("torch/extension.h", "torch/all.h", "torch/torch.h")
_PYTHON_WORDS: Final = ("PYBIND11_", "py::", "pybind11::", "PyObject")
# Names that only all of torch/extension.h has: no other header needs to be tried.
_FULL_WORDS: Final = ("torch::nn", "torch::autograd", "torch::optim", "torch::jit", "torch::serialize")
# nvcc and c++ optimize nothing by default. A little costs clang no time, and is needed for the precompiled headers.
_LEVELS: Final = {None: "-O1", "-O0": "-O1"}
_LATER_STANDARDS: Final = ("-Wno-everything", "-Wc++20-extensions", "-Wc++23-extensions")
_LATER: Final = re.compile(r"^(?>.*?warning: )(.*) \[-Wc\+\+\S+\]$", re.MULTILINE)
_EVERYBODY_TAKES: Final = ("passing no argument for the '...'", "designated initializers")
"""Parts of a later standard of C++ that nvcc and GCC take as well, as clang does with a warning. ``TORCH_CHECK``
without a message is one of them.
"""
_T = TypeVar("_T")


@dataclass(frozen=True)
class SplitResult:
    """The result of a build.

    ``kernels`` and ``resources`` have names as they are written in C++. ``log``: nvcc's output. ``seconds``: the time
    of each step; steps overlap. ``library`` is ``None`` where it was not to be linked.
    """

    library: Path | None
    kernels: tuple[str, ...]
    resources: tuple[KernelResources, ...]
    log: str
    seconds: Mapping[str, float]


@dataclass(frozen=True)
class Plan:
    """A request, as far as it is understood without calling a tool."""

    sources: Sources
    units: Units
    main_flags: HostFlags
    host_flags: HostFlags
    libraries: tuple[str, ...]


def plan(request: BuildRequest, toolchain: SplitToolchain) -> Plan:
    """Plan the build, within milliseconds. Raises ``Refused`` where the request is not for this recipe."""
    sources = sources_of(request)
    return Plan(
        sources,
        split(sources.cuda),
        _checked(cxx_flags(request.extra_cflags), toolchain),
        _checked(cuda_host_flags(request.extra_cuda_cflags), toolchain),
        tuple(link_flags(request.extra_ldflags)),
    )


def build(
    request: BuildRequest,
    toolchain: SplitToolchain,
    prepared: Path,
    directory: Path,
    *,
    line_information: bool = False,
    link: bool = True,
) -> SplitResult:
    """Build ``request`` in the empty folder ``directory``; ``prepared`` is the folder of ``prepare``.

    ``line_information``: device code can be traced to its source line. Without ``link`` the library is left out, for
    machines where torch has no CUDA libraries; the object files are in ``directory``.

    Raises ``Refused`` where the request is not for this recipe, and where a tool reports an error. The source may be
    wrong, or merely unfit for splitting; the plain recipe decides.
    """
    if not is_prepared(toolchain, prepared):
        raise Refused("there are no precompiled headers for this toolchain")
    begin = time.monotonic()
    planned = plan(request, toolchain)
    units = planned.units
    seconds = {"split": time.monotonic() - begin}
    workshop = _Workshop(request, toolchain, prepared, directory, line_information, seconds)
    (directory / "main.cpp").write_text(planned.sources.cpp)
    (directory / "cuda.cu").write_text(planned.sources.cuda)
    with ThreadPoolExecutor(max_workers=3) as pool:
        main = pool.submit(workshop.compile_main, planned)
        device = None
        if units.has_device_code and not units.has_templates:
            device = pool.submit(workshop.compile_device, units, "")
        announced = workshop.compile_host(planned)
        if units.has_device_code and device is None:
            # Templates become kernels where the host uses them: the host's side has named them.
            device = pool.submit(workshop.compile_device, units, instances(announced.kernels))
        said = device.result() if device is not None else _Device((), "", ())
        main.result()
    _check(announced, said)
    workshop.embed(announced)
    library = workshop.link(planned.libraries) if link else None
    seconds["all"] = time.monotonic() - begin
    return SplitResult(library, _written(announced.kernels), said.resources, said.log, seconds)


@dataclass(frozen=True)
class _Device:
    cubins: tuple[Path, ...]
    log: str
    resources: tuple[KernelResources, ...]


class _Workshop:
    """The steps of one build. ``seconds`` records the time of each one."""

    def __init__(
        self,
        request: BuildRequest,
        toolchain: SplitToolchain,
        prepared: Path,
        directory: Path,
        line_information: bool,
        seconds: dict[str, float],
    ) -> None:
        self._request = request
        self._toolchain = toolchain
        self._prepared = prepared
        self._directory = directory
        self._line_information = line_information
        self._seconds = seconds
        self._archives: set[Path] = set()

    def compile_main(self, planned: Plan) -> None:
        variants = _variants(planned.sources.cpp, lean="", full=True)
        self._timed("main", lambda: self._clang("main", "main.cpp", "main.o", planned.main_flags, variants))

    def compile_host(self, planned: Plan) -> Registered:
        """Compile the host's side, and return its registrations."""
        units, flags = planned.units, planned.host_flags
        self._write_unit("host.cu", units.host)
        full = any(header in units.includes for header in _EXTENSION_HEADERS)
        if full and any(word in units.host for word in _PYTHON_WORDS):
            lean = "python"
        else:
            lean = "streams" if _STREAMS in units.includes else ""
        variants = _variants(units.host, lean=lean, full=full)
        self._timed("host", lambda: self._clang("host", "host.cu", "host.o", flags, variants))
        return registered(ObjectFile((self._directory / "host.o").read_bytes()))

    def compile_device(self, units: Units, forced: str) -> _Device:
        """Compile the device unit for every architecture; ``forced`` makes kernels of templates."""
        return self._timed("device", lambda: self._nvcc(units, forced))

    def embed(self, announced: Registered) -> None:
        """Put the device code in the place of clang's stand-in for it."""
        if announced.kernels or announced.variables:
            self._run(["objcopy", "--update-section", ".nv_fatbin=device.fatbin", "host.o"], "embedding")

    def link(self, libraries: Sequence[str]) -> Path:
        toolchain = self._toolchain
        library = self._directory / f"{self._request.name}.so"
        command = [
            *toolchain.cxx,
            *("main.o", "host.o", "-shared", *map(str, sorted(self._archives))),
            *("-Wl,--gc-sections", "-Wl,--exclude-libs,ALL"),
            *toolchain.link_flags,
            *libraries,
            *([f"-B{self._prepared / 'linker'}"] if toolchain.mold is not None else []),
        ]
        checking = [*command, REPORTING, "-o", "checked.so"]
        with ThreadPoolExecutor(max_workers=1) as pool:
            said = pool.submit(self._run, checking, "linking")
            self._timed("link", lambda: self._run([*command, "-o", str(library)], "linking"))
            missing = unresolved(said.result())
        if missing:
            # The two compilers disagree about its name; the library would not load.
            raise Refused(f"no library has {demangled(missing)[0]}")
        exported = {symbol.name for symbol in ObjectFile(library.read_bytes()).exported}
        if self._request.functions is not None and f"PyInit_{self._request.name}" not in exported:
            raise Refused("the library is no Python module")
        return library

    def _clang(self, side: Side, source: str, target: str, flags: HostFlags, variants: Sequence[str]) -> None:
        """Compile with the first of the precompiled headers that has everything that the source needs."""
        embedded = ["-Xclang", "-fcuda-include-gpubinary", "-Xclang", str(self._prepared / "placeholder")]
        default = self._toolchain.standard if side == "main" else self._toolchain.cuda_standard
        standard = flags.standard or default
        for variant in variants:
            header = find_header(self._prepared, side, standard, variant)
            command = [
                *clang_command(self._toolchain, self._prepared, side, standard),
                f"-DTORCH_EXTENSION_NAME={self._request.name}",
                *self._user_includes(),
                *flags.options,
                *_LATER_STANDARDS,
                *([f"-I{self._prepared / 'shadow'}"] if header.is_lean else []),
                *("-include-pch", str(header.precompiled)),
                _LEVELS.get(flags.level, flags.level) or "",
                *(embedded if side == "host" else []),
                *("-c", source, "-o", target),
            ]
            try:
                said = self._run(command, f"the host's side ({source})")
            except Refused:
                if variant == variants[-1]:
                    raise
                continue
            later = next((text for text in _LATER.findall(said) if not text.startswith(_EVERYBODY_TAKES)), None)
            if later is not None:
                raise Refused(f"torch's compilers may not take it: {later}")
            if header.archive is not None:
                self._archives.add(header.archive)
            return

    def _nvcc(self, units: Units, forced: str) -> _Device:
        toolchain, extra = self._toolchain, split_words(self._request.extra_cuda_cflags)
        self._write_unit("device.cu", f"{units.device}\n{forced}")
        half = any(word in units.device + forced for word in ("half", "Half", "bfloat", "BFloat"))
        prelude = device_prelude(headers_for(units.device + forced), half)
        (self._directory / "device_prelude.h").write_text(prelude)
        (self._directory / "keep").mkdir()
        command = [
            *toolchain.nvcc,
            f"-DTORCH_EXTENSION_NAME={self._request.name}",
            *self._user_includes(),
            *(f"-I{self._prepared / 'include'}", *toolchain.cuda_flags),
            # As torch has it: a candidate that names an architecture has named all of them.
            *([] if any("arch" in flag for flag in self._request.extra_cuda_cflags) else toolchain.architecture_flags),
            *extra,
            *([] if names_standard(self._request.extra_cuda_cflags) else [f"-std={toolchain.cuda_standard}"]),
            *("-include", "device_prelude.h", "--keep", "--keep-dir", "keep"),
            *("-fatbin", "device.cu", "-o", "device.fatbin"),
        ]
        environment = {**os.environ, **ASKING}
        if self._line_information:
            environment["NVCC_APPEND_FLAGS"] += " -lineinfo"
        said = self._run(command, "the device's side", environment)
        reader, asked = ResourceReader(), asks_itself(self._request.extra_cuda_cflags)
        log = [line for line in said.splitlines() if not reader.take(line) or asked]
        names = demangled([kernel.name for kernel in reader.kernels])
        resources = tuple(
            replace(kernel, name=short_name(name)) for kernel, name in zip(reader.kernels, names, strict=True)
        )
        return _Device(tuple(sorted((self._directory / "keep").glob("*.cubin"))), "\n".join(log), resources)

    def _user_includes(self) -> list[str]:
        return [f"-I{self._directory / path.strip()}" for path in self._request.extra_include_paths]

    def _write_unit(self, name: str, text: str) -> None:
        # Messages, assertions and line information name the file that torch would have written.
        (self._directory / name).write_text(f'#line 1 "{self._directory / "cuda.cu"}"\n{text}\n')

    def _run(self, command: Sequence[str], step: str, environment: Mapping[str, str] | None = None) -> str:
        """Run a tool and return its output. Raises ``Refused`` where it failed."""
        try:
            done = subprocess.run(
                command,
                cwd=self._directory,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                timeout=_STEP_TIMEOUT_S,
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise Refused(f"{step}: {error}") from error
        if done.returncode:
            raise Refused(f"{step} does not compile", done.stdout)
        return done.stdout

    def _timed(self, step: str, work: Callable[[], _T]) -> _T:
        begin = time.monotonic()
        try:
            return work()
        finally:
            self._seconds[step] = time.monotonic() - begin


def unresolved(said: str) -> list[str]:
    """Return the C++ symbols that a linker with ``REPORTING`` finds nowhere.

    The two compilers may disagree about these names. Python's symbols are in its interpreter, and those of CUDA's
    libraries come with torch's.
    """
    return sorted({name for name in _UNRESOLVED.findall(said) if name.startswith("_Z")})


def instances(kernels: Iterable[str]) -> str:
    """Return a function that makes nvcc compile those of the mangled ``kernels`` that come from templates.

    Raises ``Refused`` for one whose arguments have no name.
    """
    lines: list[str] = []
    for name in demangled(sorted(kernels)):
        text = name.replace("(anonymous namespace)", ANONYMOUS)
        if not text.startswith("void ") or not text.endswith(")"):
            continue
        depth, start = 0, len(text)
        for start in range(len(text) - 1, -1, -1):
            depth += (text[start] == ")") - (text[start] == "(")
            if not depth:
                break
        if "{" in text or "'" in text or "#" in text:
            raise Refused("a kernel is made of a template with arguments that have no name")
        lines.append(f"  (void)(void (*){text[start:]})&{text[len('void ') : start]};\n")
    if not lines:
        return ""
    return "void __kerneljudge_instances() {\n" + "".join(lines) + "}\n"


def _variants(text: str, *, lean: str, full: bool) -> list[str]:
    """The precompiled headers to try for ``text``; ``full``: it includes ``torch/extension.h``."""
    if not full:
        return [lean]
    return ["full"] if any(word in text for word in _FULL_WORDS) else [lean, "full"]


def _check(announced: Registered, device: _Device) -> None:
    """Check that the CUDA runtime will find every name that the host's side announces, on every architecture."""
    if (announced.kernels or announced.variables) and not device.cubins:
        raise Refused("nothing was compiled for the device")
    for path in device.cubins:
        symbols = ObjectFile(path.read_bytes()).symbols
        entries = {symbol.name for symbol in symbols if symbol.is_kernel and symbol.section}
        variables = {symbol.name for symbol in symbols if symbol.is_variable and symbol.section}
        missing = sorted((announced.kernels - entries) | (announced.variables - variables))
        if missing:
            raise Refused(f"the device code lacks {demangled(missing)[0]}")


def _checked(flags: HostFlags, toolchain: SplitToolchain) -> HostFlags:
    if flags.standard not in (None, *toolchain.standards):
        precompiled = ", ".join(toolchain.standards)
        raise Refused(f"the language is {flags.standard}, and the precompiled headers are {precompiled}")
    return flags


def _written(kernels: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted({short_name(name) for name in demangled(sorted(kernels))}))
