"""Whether fast builds agree with torch's: ``python -m benchmarks.recipes``.

It builds every source of ``tests/build_corpus`` in torch's way and by the split recipe, and compares the results. These
are the machine code of each kernel and architecture, byte by byte, and the functions that the library offers.

Three things are left out, since nvcc and clang each have names of their own for them. Other code cannot call them.

- The host-side stand-ins of nvcc and clang for kernels.
- Their host-side stand-ins for functions for the device alone.
- The content of anonymous namespaces.

It prints a line for each source with both times. Where torch has no CUDA libraries, objects are compared instead of
libraries. It uses the result of ``kerneljudge prepare split``, and prepares it where there is none. The exit status is
1 where anything disagrees, or where the split recipe builds a source unexpectedly, or fails to.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from evaluator.builder.diagnostics import demangled
from evaluator.builder.recipes.generated import GENERATED_HEADER, GENERATED_TEXT
from evaluator.builder.recipes.split import Refused, SplitToolchain, build
from evaluator.builder.recipes.split.objects import ObjectFile, Symbol
from evaluator.builder.recipes.split.preparing import load_toolchain
from evaluator.builder.recipes.split.sources import sources_of
from evaluator.builder.request import BuildRequest
from evaluator.processes.prepare_machine import prepare
from tests.build_sources import BuildSource, load_build_sources

_ANONYMOUS = "_GLOBAL__N_"
_GLOBAL = 1
_TIMEOUT_S = 3600
_ON_DEVICE = re.compile(r"(__host__\s+)?__device__(?!\s+__host__)[^;{}()=]*?\b(\w+)\s*\(")


@dataclass(frozen=True)
class _Outcome:
    """``code``: the machine code by architecture and kernel.

    ``offered``: the functions that other code can call by name.
    """

    seconds: float
    code: dict[tuple[str, str], bytes]
    offered: frozenset[str]
    refusal: str = ""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.recipes", description=__doc__)
    parser.add_argument("--only", nargs="*", default=[], help="names of sources")
    parser.add_argument("--fast-only", action="store_true", help="leave out torch's builds")
    parser.add_argument("--jobs", type=int, default=1, help="sources at a time; times are only meaningful with one")
    parser.add_argument("--json", type=Path, help="write the rows there")
    options = parser.parse_args()
    wanted = [source for source in load_build_sources() if not options.only or source.name in options.only]
    unknown = set(options.only) - {source.name for source in wanted}
    if unknown:
        parser.error(f"no source is called {', '.join(sorted(unknown))}")
    (preparation,) = prepare(print, ["split"])
    if preparation.folder is None:
        parser.exit(2, f"the split recipe cannot be used: {preparation.obstacle}\n")
    prepared = preparation.folder
    toolchain = load_toolchain(prepared)
    with tempfile.TemporaryDirectory() as folder:
        print(f"{'source':<34}{'plain':>9}{'split':>9}{'ratio':>8}  agreement")

        def compare(source: BuildSource) -> dict[str, object]:
            fast = _split(source.request, toolchain, prepared, Path(folder) / source.name / "split")
            plain = None
            if not options.fast_only:
                plain = _plain(source.request, toolchain, Path(folder) / source.name / "plain")
            shutil.rmtree(Path(folder) / source.name)
            return _row(source, fast, plain)

        with ThreadPoolExecutor(options.jobs) as pool:
            rows = list(pool.map(compare, _with_headers(wanted, toolchain)))
    built = [row for row in rows if row["refusal"] == ""]
    typical = f", median {median(float(str(row['split_s'])) for row in built):.1f} s" if built else ""
    print(f"\nbuilt by the split recipe: {len(built)} of {len(rows)}{typical}")
    disagreeing = [
        row["source"] for row in rows if row["agreement"] not in ("same", "both refuse", "left to plain", "")
    ]
    unexpected = [row["source"] for row in rows if not row["is_expected"]]
    print(f"disagreements: {', '.join(map(str, disagreeing)) or 'none'}")
    print(f"not as expected: {', '.join(map(str, unexpected)) or 'none'}")
    if options.json:
        options.json.write_text(json.dumps({"toolchain": toolchain.to_json(), "rows": rows}, indent=1))
    return 1 if disagreeing or unexpected else 0


def _with_headers(sources: Sequence[BuildSource], toolchain: SplitToolchain) -> list[BuildSource]:
    """Return the sources without those that need a header that this toolkit lacks. These are printed."""
    found = []
    for source in sources:
        if source.needs and not (Path(toolchain.cuda_folder) / "include" / source.needs).exists():
            print(f"{source.name:<34}{'needs ' + source.needs:>26}")
            continue
        found.append(source)
    return found


def _row(source: BuildSource, fast: _Outcome, plain: _Outcome | None) -> dict[str, object]:
    agreement = "" if plain is None else _agreement(fast, plain)
    seconds = f"{plain.seconds:.1f} s" if plain else "-"
    ratio = f"{plain.seconds / fast.seconds:.0f}x" if plain and not fast.refusal else "-"
    is_expected = (source.outcome == "fast") == (not fast.refusal)
    complaint = "" if is_expected else f"{source.outcome.upper()} EXPECTED"
    said = " ".join(filter(None, (agreement, complaint, fast.refusal)))
    print(f"{source.name:<34}{seconds:>9}{fast.seconds:>7.1f} s{ratio:>8}  {said}".rstrip(), flush=True)
    return {
        "source": source.name,
        "split_s": fast.seconds,
        "plain_s": plain.seconds if plain else None,
        "agreement": agreement,
        "is_expected": is_expected,
        "refusal": fast.refusal,
    }


def _agreement(fast: _Outcome, plain: _Outcome) -> str:
    if fast.refusal:
        return "both refuse" if plain.refusal else "left to plain"
    if plain.refusal:
        return f"DIFFERENT: torch does not build it: {plain.refusal}"
    missing = sorted(name for key in set(plain.code) - set(fast.code) for name in (" ".join(key),))
    other = sorted(" ".join(key) for key in set(plain.code) & set(fast.code) if plain.code[key] != fast.code[key])
    if missing or other:
        return f"DIFFERENT: kernels missing {missing}, other code {other}"
    if fast.offered != plain.offered:
        return f"DIFFERENT: offers {sorted(fast.offered ^ plain.offered)[:4]}"
    return "same"


def _split(request: BuildRequest, toolchain: SplitToolchain, prepared: Path, directory: Path) -> _Outcome:
    directory.mkdir(parents=True)
    begin = time.monotonic()
    try:
        build(request, toolchain, prepared, directory, link=toolchain.can_link)
    except Refused as refusal:
        return _Outcome(time.monotonic() - begin, {}, frozenset(), refusal.reason)
    seconds = time.monotonic() - begin
    return _Outcome(seconds, _code(directory / "keep"), _offered(request, directory))


def _plain(request: BuildRequest, toolchain: SplitToolchain, directory: Path) -> _Outcome:
    """Run the commands that torch would give to ninja, all at once as ninja would."""
    (directory / "keep").mkdir(parents=True)
    try:
        sources = sources_of(request)
    except Refused as refusal:
        return _Outcome(0.0, {}, frozenset(), refusal.reason)
    (directory / "main.cpp").write_text(sources.cpp)
    (directory / "cuda.cu").write_text(sources.cuda)
    name, extra = f"-DTORCH_EXTENSION_NAME={request.name}", " ".join(request.extra_cuda_cflags).split()
    shims = _shims(directory, toolchain.can_link)
    cpp = [*toolchain.cxx, name, *toolchain.cxx_flags, f"-std={toolchain.standard}", *_words(request.extra_cflags)]
    cuda = [*toolchain.nvcc, name, *shims, *toolchain.cuda_flags]
    cuda += [] if any("arch" in flag for flag in extra) else toolchain.architecture_flags
    cuda += [*extra, *([] if any(flag.startswith("-std=") for flag in extra) else [f"-std={toolchain.cuda_standard}"])]
    begin = time.monotonic()
    commands = [
        [*cpp, "-c", "main.cpp", "-o", "main.o"],
        [*cuda, "--keep", "--keep-dir", "keep", "-c", "cuda.cu", "-o", "host.o"],
    ]
    processes = [
        subprocess.Popen(command, cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for command in commands
    ]
    try:
        said = [process.communicate(timeout=_TIMEOUT_S)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    for process, text in zip(processes, said, strict=True):
        if process.returncode:
            return _Outcome(time.monotonic() - begin, {}, frozenset(), _first_error(text))
    if toolchain.can_link:
        flags = [*toolchain.link_flags, *_words(request.extra_ldflags)]
        link = [*toolchain.cxx, "main.o", "host.o", "-shared", *flags, "-o", f"{request.name}.so"]
        done = subprocess.run(link, cwd=directory, capture_output=True, text=True)
        if done.returncode:
            return _Outcome(time.monotonic() - begin, {}, frozenset(), _first_error(done.stderr))
    return _Outcome(time.monotonic() - begin, _code(directory / "keep"), _offered(request, directory))


def _shims(directory: Path, can_link: bool) -> list[str]:
    """Return the flags for a header that CPU builds of torch lack. They have all other headers for CUDA."""
    if can_link:
        return []
    header = directory / "shims" / GENERATED_HEADER
    header.parent.mkdir(parents=True)
    header.write_text(GENERATED_TEXT)
    return [f"-I{directory / 'shims'}"]


def _words(flags: tuple[str, ...]) -> list[str]:
    return " ".join(flags).split()


def _code(folder: Path) -> dict[tuple[str, str], bytes]:
    """Return the machine code of every kernel, by architecture and by name without the file's own namespace."""
    found: dict[tuple[str, str], bytes] = {}
    for path in sorted(folder.glob("*.cubin")):
        parts = reversed(path.name.split("."))
        architecture = next((part for part in parts if part.startswith(("sm_", "compute_"))), "")
        cubin = ObjectFile(path.read_bytes())
        kernels = _kernels(cubin)
        for symbol, name in zip(kernels, demangled([symbol.name for symbol in kernels]), strict=True):
            found[architecture, name] = cubin.contents(cubin.sections[symbol.section])
    return found


def _kernels(cubin: ObjectFile) -> list[Symbol]:
    return [symbol for symbol in cubin.symbols if symbol.is_kernel and symbol.section]


def _offered(request: BuildRequest, directory: Path) -> frozenset[str]:
    """Return the source's own functions that can be called. Functions from headers are weak symbols."""
    objects = [ObjectFile((directory / name).read_bytes()) for name in ("main.o", "host.o")]
    symbols = [symbol for each in objects for symbol in each.symbols]
    own = {symbol.name for symbol in symbols if symbol.section and symbol.binding == _GLOBAL and symbol.kind == 2}
    cubins = [ObjectFile(path.read_bytes()) for path in (directory / "keep").glob("*.cubin")]
    own -= {symbol.name for cubin in cubins for symbol in _kernels(cubin)}
    named = {name: re.split(r"[(<]", written)[0].split("::")[-1] for name, written in _written(own).items()}
    elsewhere = {name for host, name in _ON_DEVICE.findall(sources_of(request).cuda) if not host}
    hidden = ("__device_stub__", _ANONYMOUS)
    return frozenset(name for name in own if not any(part in name for part in hidden) and named[name] not in elsewhere)


def _written(names: Collection[str]) -> dict[str, str]:
    """Return the names as they are written in C++."""
    ordered = sorted(names)
    return dict(zip(ordered, demangled(ordered), strict=True))


def _first_error(said: str) -> str:
    return next((line for line in said.splitlines() if "error" in line), said[-200:]).strip()[:200]


if __name__ == "__main__":
    sys.exit(main())
