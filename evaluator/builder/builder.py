"""Building one request: through the cache, by the first recipe that can, within limits. Torch-free."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from evaluator.builder.cache import Artifact, BuildFailure
from evaluator.builder.diagnostics import first_error, foreign_header_missing
from evaluator.builder.recipes.ladder import RECIPES, Recipe, recipe_versions
from evaluator.builder.request import BuildRequest
from evaluator.builder.resources import KernelResources
from evaluator.builder.store import ArtifactStore
from evaluator.devices.machine_memory import available_memory_bytes, out_of_memory_kills
from evaluator.errors import InfrastructureFault
from evaluator.interpreter import python_command
from evaluator.sandbox.capture import Capture
from evaluator.sandbox.confinement import Confinement
from evaluator.sandbox.priority import was_starved

__all__ = ["Builder"]

_LOG_BYTES: Final = 256 * 1024
_REPORT_BYTES: Final = 256 * 1024
_DRAIN_S: Final = 5.0
_POLL_S: Final = 0.2
_MAX_REASON: Final = 300
_MAX_MESSAGE: Final = 2000
_MAX_KERNELS: Final = 1000
_MIN_DISK_BYTES: Final = 256 * 2**20
_MIN_MEMORY_BYTES: Final = 256 * 2**20
# Compilers' messages on a machine without room for them. A source can make a compiler print them, too.
_MACHINES_FAULTS: Final = (
    "Killed",
    "[code=137]",  # ninja's word for a command that was killed
    "died due to signal 9",  # and nvcc's
    "signal 7 [Bus error]",  # a linker's, whose file the disk has no room for
    "No space left on device",
    "Disk quota exceeded",
    "Too many open files",
    "cannot allocate memory",
    "virtual memory exhausted",
    "internal compiler error",
    "Resource temporarily unavailable",
    "Cannot allocate memory",
    "out of memory allocating",
    "LLVM ERROR: out of memory",
    "std::bad_alloc",
    "MemoryError",
)


@dataclass(frozen=True)
class _Attempt:
    """The end of a recipe's process. ``status`` is ``None`` where the builder ended it: too late, or cancelled."""

    status: int | None
    log: str
    report: Mapping[str, Any]
    folder: str
    """The folder of the build, as the compiler names it."""
    starved: bool
    """Whether it ran out of time because it had hardly any processor time."""
    least_memory_bytes: int
    """The least available memory of the machine while it ran."""

    @property
    def unreported(self) -> bool:
        """Whether it ended without a report: it was killed, or could not begin.

        That says nothing about the sources. A command of theirs cannot kill the first process of its namespace.
        """
        return self.status is not None and "outcome" not in self.report

    @property
    def blames_the_machine(self) -> bool:
        """Whether it failed without a report, or with a message that compilers print on a machine without room."""
        if self.unreported:
            return True
        said = f"{self.log}{self.report.get('message', '')}"
        return bool(self.status) and any(fault in said for fault in _MACHINES_FAULTS)

    @property
    def refusal(self) -> str | None:
        """The reason to try the next recipe, or ``None``."""
        if self.status is None or self.report.get("outcome") in ("built", "failed"):
            return None
        return _storable(str(self.report.get("message") or f"its process ended with {self.status}"))[:_MAX_REASON]


class Builder:
    """Builds requests, several at a time, each in a process group of its own.

    ``toolchain``: everything besides the request that decides the result; it is part of every key. Where it has
    ``line_information``, device code can be traced to its source line. ``prepared``: the prepared folder of each
    recipe, by the recipe's name.
    """

    def __init__(
        self,
        cache: ArtifactStore,
        toolchain: Mapping[str, Any],
        environment: Mapping[str, str],
        scratch: Path,
        confinement: Confinement,
        *,
        slots: int,
        prepared: Mapping[str, str] | None = None,
        recipes: Sequence[Recipe] = RECIPES,
    ) -> None:
        self._cache = cache
        self._toolchain = {**toolchain, "recipes": recipe_versions()}
        self._environment = dict(environment)
        self._scratch = scratch
        self._confinement = confinement
        self._prepared = dict(prepared or {})
        self._recipes = tuple(recipes)
        self._slots = threading.BoundedSemaphore(slots)
        self._running: set[subprocess.Popen[bytes]] = set()
        self._lock = threading.Lock()
        self._closed = False

    def build(
        self, request: BuildRequest, timeout_s: float, ended: threading.Event
    ) -> tuple[Artifact | BuildFailure, bool]:
        """Return the artifact or the failure, and whether it came from the cache.

        An artifact is the build of ``request.shared``. ``ended`` is set when no caller waits for the build any more,
        and ends its compiler. Raises ``InfrastructureFault`` where the build took too long because the machine was busy
        with other work.
        """
        if request.uses_cuda and not self._toolchain.get("nvcc"):
            message = "the candidate has CUDA sources, and there is no nvcc on this machine"
            return BuildFailure(request.name, message, "", 0.0, toolchain_missing=True), False
        request = request.shared
        key = request.key(self._toolchain)
        found = self._cache.find(key)
        if found is not None:
            return found, True
        with self._cache.building(key):
            found = self._cache.obtain(key)
            if found is not None:
                return found, True
            with self._slots:
                return self._compile(request, key, timeout_s, ended), False

    def close(self) -> None:
        """End every compiler that is running."""
        with self._lock:
            self._closed = True
            for process in self._running:
                _kill_group(process)

    def _compile(
        self, request: BuildRequest, key: str, timeout_s: float, ended: threading.Event
    ) -> Artifact | BuildFailure:
        begin = time.monotonic()
        refusals: dict[str, str] = {}
        for recipe in self._recipes:
            if not recipe.handles(request) or recipe.covered_by in self._prepared:
                continue
            if recipe.preparation is not None and recipe.name not in self._prepared:
                refusals[recipe.name] = "not prepared on this machine (kerneljudge prepare)"
                continue
            with self._folder() as (directory, library):
                kills = out_of_memory_kills()
                left_s = timeout_s - (time.monotonic() - begin)
                attempt = self._run(recipe, request, directory, library, left_s, ended)
                if attempt.blames_the_machine and (attempt.refusal is None or recipe is self._recipes[-1]):
                    left_s = timeout_s - (time.monotonic() - begin)
                    attempt = self._again(recipe, request, attempt, kills, directory, library, left_s, ended)
                seconds = time.monotonic() - begin
                # The answer of the last recipe counts, whatever it is.
                refusal = attempt.refusal if recipe is not self._recipes[-1] else None
                if refusal is None:
                    result = self._result(request, key, attempt, library, seconds, timeout_s)
                    return self._kept(key, replace(result, recipe=recipe.name, refusals=refusals))
                refusals[recipe.name] = refusal
        raise AssertionError("the last recipe handles everything")

    def _again(
        self,
        recipe: Recipe,
        request: BuildRequest,
        first: _Attempt,
        kills: int,
        directory: Path,
        library: Path,
        timeout_s: float,
        ended: threading.Event,
    ) -> _Attempt:
        """Repeat an attempt that failed as if the machine had no room for it.

        ``kills``: the kernel's count of processes killed for want of memory before the ``first`` attempt. Raises
        ``InfrastructureFault`` where it fails in the same way again, or has no time to, and the machine itself reports
        a lack of room. The compiler's message alone is no proof of a fault of ours, because a candidate's source
        decides the output.
        """
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir()
        library.write_bytes(b"")
        again = self._run(recipe, request, directory, library, timeout_s, ended)
        if again.status is not None and not again.blames_the_machine:
            return again
        lack = _lack_of_the_machine(
            self._scratch, kills, min(first.least_memory_bytes, again.least_memory_bytes, available_memory_bytes())
        )
        if lack:
            raise InfrastructureFault(f"an extension could not be built: {lack}")
        return first if again.status is None else again

    def _result(
        self, request: BuildRequest, key: str, attempt: _Attempt, library: Path, seconds: float, timeout_s: float
    ) -> Artifact | BuildFailure:
        log, report = attempt.log, attempt.report
        if attempt.status == 0:
            kernels = _texts(report.get("kernels"))
            resources = KernelResources.parse_all(report.get("resources"))
            path = str(library) if report.get("linked") else None
            return Artifact(key, request.name, path, kernels, seconds, log, resources)
        if attempt.status is None:
            if attempt.starved:
                raise InfrastructureFault(
                    f"building an extension had hardly a processor for {seconds:.0f} s: the machine is busy otherwise"
                )
            message = f"building the extension took longer than {timeout_s:.0f} s"
            return BuildFailure(request.name, message, log, seconds, timed_out=True)
        if attempt.unreported:
            message = f"the process that builds ended twice without a report, and with {attempt.status}"
            print(f"{message}: {report.get('message')}", file=sys.stderr, flush=True)
            return BuildFailure(request.name, message, log, seconds, toolchain_missing=True)
        header = foreign_header_missing(log, attempt.folder)
        if header is not None and not request.renames_lines:
            message = f"this machine's toolkit lacks {header}, which a header of torch or CUDA includes"
            return BuildFailure(request.name, message, log, seconds, toolchain_missing=True)
        error = first_error(log, attempt.folder) or report.get("message")
        return BuildFailure(
            request.name,
            _storable(str(error or f"the compiler ended with {attempt.status}")),
            log.replace(f"{attempt.folder}/", ""),
            seconds,
            toolchain_missing=bool(report.get("toolchain")),
        )

    def _kept(self, key: str, result: Artifact | BuildFailure) -> Artifact | BuildFailure:
        if isinstance(result, Artifact):
            return self._cache.store(result, None if result.path is None else Path(result.path))
        if _is_the_sources_fault(result):
            self._cache.store_failure(key, result)
        return result

    @contextlib.contextmanager
    def _folder(self) -> Iterator[tuple[Path, Path]]:
        """Provide an empty folder for the build, and a path for the library beside it."""
        directory = Path(tempfile.mkdtemp(prefix="build-", dir=self._scratch))
        library = directory.with_suffix(".so")
        try:
            yield directory, library
        finally:
            shutil.rmtree(directory, ignore_errors=True)
            library.unlink(missing_ok=True)

    def _run(
        self,
        recipe: Recipe,
        request: BuildRequest,
        directory: Path,
        library: Path,
        timeout_s: float,
        ended: threading.Event,
    ) -> _Attempt:
        """Run ``recipe`` in ``directory``, with a root of its own over it, and write to ``library``."""
        payload = {
            "request": {**asdict(request), "uses_cuda": request.uses_cuda},
            "confinement": self._confinement.to_json(),
            "line_information": bool(self._toolchain.get("line_information")),
            "prepared": self._prepared.get(recipe.name),
        }
        output, report = Capture(_LOG_BYTES), Capture(_REPORT_BYTES)
        with library.open("wb") as library_file:
            process = subprocess.Popen(
                python_command("-m", recipe.module, str(library_file.fileno())),
                cwd=directory,
                env=self._environment,
                stdin=subprocess.PIPE,
                stdout=output.descriptor,
                stderr=report.descriptor,
                pass_fds=[library_file.fileno()],
                start_new_session=True,
            )
            output.close_writer()
            report.close_writer()
            with self._lock:
                self._running.add(process)
                if self._closed:
                    _kill_group(process)
            assert process.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(json.dumps(payload).encode())
                process.stdin.close()
            status: int | None = None
            least_memory_bytes = available_memory_bytes()
            begin = time.monotonic()
            deadline = begin + timeout_s
            while status is None and time.monotonic() < deadline and not ended.is_set():
                with contextlib.suppress(subprocess.TimeoutExpired):
                    status = process.wait(_POLL_S)
                least_memory_bytes = min(least_memory_bytes, available_memory_bytes())
            late = status is None and not ended.is_set()
            starved = late and was_starved(process.pid, time.monotonic() - begin)
            _kill_group(process)
            process.wait()
            with self._lock:
                self._running.discard(process)
        said = _last_object(report.text(_DRAIN_S))
        folder = str(said.get("directory", directory))
        return _Attempt(status, output.text(_DRAIN_S), said, folder, starved, least_memory_bytes)


def _lack_of_the_machine(scratch: Path, kills_before: int, least_memory_bytes: int) -> str:
    """Name the resource that the machine lacks or lacked, by its own account; empty where it lacks none."""
    if out_of_memory_kills() != kills_before:
        return "the kernel killed processes of this machine for want of memory meanwhile"
    if least_memory_bytes < _MIN_MEMORY_BYTES:
        return "the machine has no memory left"
    free = shutil.disk_usage(scratch).free
    if free < _MIN_DISK_BYTES:
        return f"the disk of the scratch folder has {free // 2**20} MiB left"
    inodes = os.statvfs(scratch)
    if inodes.f_files and not inodes.f_favail:
        return "the disk of the scratch folder takes no more files"
    try:
        subprocess.run(["true"], check=False)
    except BlockingIOError:
        return "the machine starts no more processes"
    return ""


def _is_the_sources_fault(failure: BuildFailure) -> bool:
    """Whether the same build would fail again in the same way."""
    if failure.timed_out or failure.toolchain_missing:
        return False
    return "error" in failure.log and not any(fault in failure.log for fault in _MACHINES_FAULTS)


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _last_object(text: str) -> dict[str, Any]:
    lines = text.strip().splitlines()
    # A candidate's compiler may have printed it, with any depth of nesting and any length of numbers.
    with contextlib.suppress(ValueError, RecursionError, IndexError):
        data = json.loads(lines[-1])
        if isinstance(data, dict):
            return data
    return {"message": text.strip()[-_MAX_MESSAGE:]}


def _texts(value: object) -> tuple[str, ...]:
    """Return the texts of a list of texts; empty where a recipe's process reported anything else."""
    items = value[:_MAX_KERNELS] if isinstance(value, list) else []
    return tuple(_storable(item) for item in items if isinstance(item, str))


def _storable(text: str) -> str:
    """Return ``text`` cut to length, and without lone surrogates, which JSON can spell and no database takes."""
    return text[:_MAX_MESSAGE].encode(errors="replace").decode()
