"""Building one request: through the cache, by the plain recipe, within limits. Torch-free."""

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
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from evaluator.build.cache import Artifact, ArtifactCache
from evaluator.build.diagnostics import first_error, foreign_header_missing
from evaluator.build.request import BuildRequest
from evaluator.build.resources import KernelResources
from evaluator.sandbox.capture import Capture
from evaluator.sandbox.confinement import Confinement

__all__ = ["BuildFailure", "Builder"]

_LOG_BYTES: Final = 256 * 1024
_REPORT_BYTES: Final = 256 * 1024
_DRAIN_S: Final = 5.0
_POLL_S: Final = 0.2
_RECIPE: Final = "plain, with resources"


@dataclass(frozen=True)
class BuildFailure:
    """The compiler refused, or took too long. ``message`` has the first real error first.

    ``toolchain_missing``: it is this machine's fault, not the candidate's.
    """

    name: str
    message: str
    log: str
    seconds: float
    timed_out: bool = False
    toolchain_missing: bool = False


class Builder:
    """Builds requests, several at a time, each in a process group of its own.

    ``toolchain`` is what, besides the request, decides the result; it is part of every key. Where it has
    ``line_information``, device code can be traced to its source line.
    """

    def __init__(
        self,
        cache: ArtifactCache,
        toolchain: Mapping[str, Any],
        environment: Mapping[str, str],
        scratch: Path,
        confinement: Confinement,
        *,
        slots: int,
    ) -> None:
        self._cache = cache
        self._toolchain = {**toolchain, "recipe": _RECIPE}
        self._environment = dict(environment)
        self._scratch = scratch
        self._confinement = confinement
        self._slots = threading.BoundedSemaphore(slots)
        self._running: set[subprocess.Popen[bytes]] = set()
        self._lock = threading.Lock()
        self._closed = False

    def build(
        self, request: BuildRequest, timeout_s: float, ended: threading.Event
    ) -> tuple[Artifact | BuildFailure, bool]:
        """The artifact or why there is none, and whether it came from the cache.

        ``ended`` is set when nobody waits for it any more: its compiler is ended then.
        """
        if request.uses_cuda and not self._toolchain.get("nvcc"):
            message = "the candidate has CUDA sources, and there is no nvcc on this machine"
            return BuildFailure(request.name, message, "", 0.0, toolchain_missing=True), False
        key = request.key(self._toolchain)
        found = self._cache.find(key)
        if found is not None:
            return found, True
        with self._cache.building(key):
            found = self._cache.find(key)
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
        directory = Path(tempfile.mkdtemp(prefix="build-", dir=self._scratch))
        library = directory.with_suffix(".so")
        begin = time.monotonic()
        try:
            status, log, report = self._run(request, directory, library, timeout_s, ended)
            seconds = time.monotonic() - begin
            folder = str(report.get("directory", directory))
            if status == 0:
                kernels = tuple(map(str, report.get("kernels", ())))
                linked = library if report.get("linked") else None
                resources = KernelResources.parse_all(report.get("resources"))
                artifact = Artifact(key, request.name, None, kernels, seconds, log, resources)
                return self._cache.store(artifact, linked)
            if status is None:
                message = f"building extension {request.name!r} took longer than {timeout_s:.0f} s"
                return BuildFailure(request.name, message, log, seconds, timed_out=True)
            header = foreign_header_missing(log, folder)
            if header is not None and not request.renames_lines:
                message = f"this machine's toolkit lacks {header}, which a header of torch or CUDA includes"
                return BuildFailure(request.name, message, log, seconds, toolchain_missing=True)
            error = first_error(log, folder) or report.get("message") or f"the compiler ended with {status}"
            return BuildFailure(
                request.name,
                str(error),
                log.replace(f"{folder}/", ""),
                seconds,
                toolchain_missing=bool(report.get("toolchain")),
            )
        finally:
            shutil.rmtree(directory, ignore_errors=True)
            library.unlink(missing_ok=True)

    def _run(
        self, request: BuildRequest, directory: Path, library: Path, timeout_s: float, ended: threading.Event
    ) -> tuple[int | None, str, dict[str, Any]]:
        """Exit status (``None``: timed out, or ended), the compiler's output, and the recipe's own report.

        The compiler works in a root of its own over ``directory``; what comes out is written to ``library``.
        """
        payload = {
            "request": {**asdict(request), "uses_cuda": request.uses_cuda},
            "confinement": self._confinement.to_json(),
            "line_information": bool(self._toolchain.get("line_information")),
        }
        output, report = Capture(_LOG_BYTES), Capture(_REPORT_BYTES)
        with library.open("wb") as library_file:
            process = subprocess.Popen(
                [sys.executable, "-m", "evaluator.build.plain", str(library_file.fileno())],
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
            deadline = time.monotonic() + timeout_s
            while status is None and time.monotonic() < deadline and not ended.is_set():
                with contextlib.suppress(subprocess.TimeoutExpired):
                    status = process.wait(_POLL_S)
            _kill_group(process)
            process.wait()
            with self._lock:
                self._running.discard(process)
        return status, output.text(_DRAIN_S), _last_object(report.text(_DRAIN_S))


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _last_object(text: str) -> dict[str, Any]:
    lines = text.strip().splitlines()
    with contextlib.suppress(json.JSONDecodeError, IndexError):
        data = json.loads(lines[-1])
        if isinstance(data, dict):
            return data
    return {"message": text.strip()[-2000:]}
