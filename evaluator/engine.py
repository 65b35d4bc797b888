"""The evaluator as its users see it: build a candidate, evaluate it, get an ``Evaluation``. Torch-free.

An engine supervises three kinds of processes and never touches CUDA itself: the *judge* (one, trusted),
the *builder* (one, trusted) and the process that *runners* are forked from. It restarts what dies.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from functools import cache
from pathlib import Path
from typing import Any, Final

from evaluator.advisory import advise
from evaluator.build.client import BuilderProcess
from evaluator.candidate import Candidate
from evaluator.config import EvalConfig, Limits
from evaluator.devices import (
    available_devices,
    cuda_architectures,
    cuda_nodes,
    cuda_uuid,
    has_cxx_compiler,
    has_nvcc,
    nvcc_path,
)
from evaluator.errors import (
    DeviceUnavailable,
    EvaluationCancelled,
    InfrastructureFault,
    SandboxIncomplete,
    ToolchainMissing,
)
from evaluator.evaluation import ErrorFigures, Evaluation, Gradients, Interval, Latency, SampleSeries, Verdict
from evaluator.explain import explain_exit, explain_failure, hints_for
from evaluator.judge.client import JudgeProcess
from evaluator.problem import Problem
from evaluator.protocol import FRAME_BYTES, Frame, FrameKind
from evaluator.sandbox.capture import Capture
from evaluator.sandbox.client import ForkServer, RunnerProcess
from evaluator.sandbox.confinement import Confinement
from evaluator.sandbox.filesystem import Root, visible_paths
from evaluator.sandbox.layers import MEANING, OPTIONAL, Layer, SandboxLayer

__all__ = ["BuildReport", "Engine", "Progress", "SandboxLayer", "available_devices", "has_nvcc"]

_PASSED_ON: Final = ("PATH", "CUDA_HOME", "CXX", "CC", "LD_LIBRARY_PATH", "LANG", "PYTHONPATH", "VIRTUAL_ENV")
_PACKAGES: Final = ("api", "client", "evaluator", "storage", "worker")
_LEAST_MEMORY_BYTES: Final = 4 * 2**30
_BUILD_DISK_BYTES: Final = 4 * 2**30
_EXIT_S: Final = 5.0
_DRAIN_S: Final = 1.0
_POLL_S: Final = 0.2


@dataclass(frozen=True)
class Progress:
    """Where an evaluation is. ``share`` (0 to 1) is within the stage."""

    stage: str
    message: str = ""
    share: float | None = None


@dataclass(frozen=True)
class BuildReport:
    """What the build stage found. ``evaluation`` is set where the verdict stands already.

    ``extensions`` counts those that were built, ``cached`` those of them that were there already;
    ``toolchain_gap`` says what this machine lacks where something could not be built for that reason.
    """

    evaluation: Evaluation | None
    seconds: float
    extensions: int
    cached: int
    log: str
    toolchain_gap: str | None = None


class _Discovery(Enum):
    """How importing a module to find its extensions ended. ``TIMED_OUT``: after ``load_s``, compilers not counted."""

    IMPORTED = auto()
    FAILED = auto()
    TIMED_OUT = auto()


@dataclass
class _Run:
    """One runner with everything that belongs to it."""

    process: RunnerProcess
    forkserver: ForkServer
    builder: BuilderProcess
    control: socket.socket
    build_session: int
    log: Capture
    builds: list[dict[str, Any]] = field(default_factory=list)

    def learn_builds(self) -> None:
        """Ask the builder what the runner had built. Raises ``InfrastructureFault``."""
        self.builds = self.builder.report(self.build_session)
        for build in self.builds:
            if build.get("infrastructure"):
                raise InfrastructureFault(f"the builder failed: {build['error']}")


def ignore_progress(_progress: Progress) -> None:
    """Do nothing with it."""


def never_cancelled() -> bool:
    return False


class Engine:
    """Builds and evaluates on one device. One evaluation at a time; builds may run beside it.

    ``device``: ``cpu``, ``cuda`` or ``cuda:N``; ``None`` for an engine that only builds. ``cache_dir``
    holds built extensions and may be shared by several engines. With ``require_sandbox`` it does not start
    where the kernel refuses a layer of the sandbox.
    """

    def __init__(
        self,
        *,
        device: str | None,
        cache_dir: Path,
        scratch_dir: Path | None = None,
        build_slots: int | None = None,
        require_sandbox: bool = False,
    ) -> None:
        self._device = device
        self._require_sandbox = require_sandbox
        self._cache_dir = cache_dir.absolute()
        self._scratch_base = scratch_dir
        self._build_slots = build_slots or max(1, (os.cpu_count() or 2) // 2)
        self._judge: JudgeProcess | None = None
        self._builder: BuilderProcess | None = None
        self._forkserver: ForkServer | None = None
        self._scratch: Path | None = None
        self._evaluating = threading.Lock()
        self._starting = threading.RLock()
        self._description: dict[str, Any] = {}
        self._missing_layers: tuple[Layer, ...] = ()

    def __enter__(self) -> Engine:
        self.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    @property
    def environment(self) -> Mapping[str, Any]:
        """Device, driver and versions; what a result has to be read with. Empty before ``start``."""
        return dict(self._description)

    @property
    def missing_layers(self) -> dict[str, str]:
        """Layers of the sandbox that this machine's kernel refuses, and what each of them means."""
        return {str(layer): MEANING[layer] for layer in self._missing_layers}

    @property
    def layers(self) -> tuple[SandboxLayer, ...]:
        """Every layer of the sandbox, as ``start`` found it."""
        return tuple(
            SandboxLayer(str(layer), layer not in self._missing_layers, layer in OPTIONAL, MEANING[layer])
            for layer in Layer
        )

    @property
    def process_ids(self) -> dict[str, int]:
        """The engine's own long-lived processes that are alive, by role."""
        roles = {"judge": self._judge, "builder": self._builder, "forkserver": self._forkserver}
        return {
            role: process.pid
            for role, process in roles.items()
            if process is not None and process.alive and process.pid is not None
        }

    def start(self) -> None:
        """Start every process and wait until it is ready.

        Raises ``DeviceUnavailable`` where the device is not on this machine, ``ToolchainMissing`` where
        there is no C++ compiler, ``SandboxIncomplete`` where one is required and the kernel refuses a layer,
        ``InfrastructureFault`` where a process does not start.
        """
        if self._device is not None and not any(_covers(known, self._device) for known in available_devices()):
            raise DeviceUnavailable(
                f"no device {self._device} on this machine; there is {', '.join(available_devices())}"
            )
        if not has_cxx_compiler():
            raise ToolchainMissing("no C++ compiler on this machine: install g++ (or set CXX)")
        if self._scratch is None:
            self._scratch = Path(tempfile.mkdtemp(prefix="kerneljudge-", dir=self._scratch_base))
            # The parent of every private directory: only this user may enter.
            self._scratch.chmod(0o700)
        try:
            self._ensure_alive()
        except BaseException:
            # ``with Engine(...)`` does not come to its end where its start fails.
            self.close()
            raise

    def close(self) -> None:
        """End every process and remove the scratch directory. Idempotent."""
        for process in (self._forkserver, self._judge, self._builder):
            if process is not None:
                process.close()
        self._forkserver = self._judge = self._builder = None
        if self._scratch is not None:
            _remove(self._scratch)
            self._scratch = None

    def build(
        self,
        problem: Problem,
        candidate: Candidate,
        config: EvalConfig,
        *,
        progress: Callable[[Progress], None] = ignore_progress,
        cancelled: Callable[[], bool] = never_cancelled,
    ) -> BuildReport:
        """Import the candidate without a device, to find its extensions and build them.

        What it finds is a verdict only where the device could not change it: a compile error, a build or an
        import that takes too long. Whatever else goes wrong while importing may have to do with the missing
        device, and is left to ``evaluate``, as is what this machine's toolkit cannot compile.
        Raises ``EvaluationCancelled`` and ``InfrastructureFault``.
        """
        begin = time.monotonic()
        self._ensure_alive(judge=False)
        progress(Progress("building", "looking for extensions"))
        with self._runner(problem, candidate.source, config, discover=True) as run:
            discovery = self._await_discovery(run, config, progress, cancelled)
            run.learn_builds()
            builds, log = run.builds, self._log_of(run)
        seconds = time.monotonic() - begin
        evaluation = None
        if discovery is _Discovery.TIMED_OUT:
            message = f"importing the module took longer than {config.limits.load_s:.0f} s, compilers not counted"
            evaluation = self._evaluation(
                problem, config, Verdict.TIMEOUT, message, log=log, stage_s={"building": seconds}
            )
        failed = next((build for build in builds if "error" in build), None)
        # What this machine cannot compile, the device's own may; and a candidate may have an answer to it.
        if failed is not None and not failed.get("toolchain_missing") and discovery is _Discovery.FAILED:
            evaluation = self._evaluation(
                problem, config, *_build_verdict(failed), log=log, stage_s={"building": seconds}
            )
        if evaluation is not None:
            evaluation = replace(evaluation, flags=advise(candidate.source, of_precision=config.precision))
        return BuildReport(
            evaluation,
            seconds,
            extensions=sum(1 for build in builds if "error" not in build),
            cached=sum(1 for build in builds if build.get("cached")),
            log=log,
            toolchain_gap=next((str(build["error"]) for build in builds if build.get("toolchain_missing")), None),
        )

    def evaluate(
        self,
        problem: Problem,
        candidate: Candidate,
        config: EvalConfig,
        *,
        progress: Callable[[Progress], None] = ignore_progress,
        cancelled: Callable[[], bool] = never_cancelled,
    ) -> Evaluation:
        """Judge the candidate on this engine's device.

        Raises ``DoesNotFit``, ``ProblemError``, ``DeviceUnavailable``, ``ToolchainMissing``,
        ``EvaluationCancelled`` and ``InfrastructureFault``; whatever the candidate does wrong is in the ``Evaluation``.
        """
        if self._device is None:
            raise DeviceUnavailable("this engine only builds: it has no device")
        with self._evaluating:
            self._ensure_alive()
            judge = self._judge
            assert judge is not None
            begin = time.monotonic()
            kills_before = _out_of_memory_kills()
            reference = problem.sized_source(config.size)
            with (
                self._runner(problem, candidate.source, config, discover=False) as run,
                self._runner(problem, reference, config, discover=False, reference=True) as baseline,
            ):
                enclosures = {"candidate": _enclosure(run.process), "baseline": _enclosure(baseline.process)}
                try:
                    outcome = judge.evaluate(
                        problem,
                        config,
                        [run.control.fileno(), baseline.control.fileno()],
                        enclosures,
                        lambda stage, message, share: progress(Progress(stage, message, share)),
                        cancelled,
                    )
                    status = run.forkserver.poll(run.process, _EXIT_S if outcome["verdict"] is None else 0)
                finally:
                    # The judge frees the shared memory once nobody maps it, however this ended.
                    for ended in (run, baseline):
                        with contextlib.suppress(InfrastructureFault):
                            ended.forkserver.begin_kill(ended.process)  # a context takes a while to go
                    for ended in (run, baseline):
                        with contextlib.suppress(InfrastructureFault):
                            ended.forkserver.kill(ended.process)
                    judge.clean_up()
                if run.process.left:
                    raise InfrastructureFault("something of the candidate survived its end")
                killed_by_kernel = run.process.out_of_memory or _out_of_memory_kills() != kills_before
                if status == signal.SIGKILL and not killed_by_kernel:
                    # Neither the kernel for want of memory nor the candidate (nobody can kill process 1 from
                    # inside its namespace): it was somebody on this machine.
                    raise InfrastructureFault("the candidate's process was killed from outside")
                run.learn_builds()
                outcome["stage_s"]["total"] = time.monotonic() - begin
                evaluation = self._conclude(problem, config, run, outcome, status)
                return replace(evaluation, flags=advise(candidate.source, of_precision=config.precision))

    def _ensure_alive(self, *, judge: bool = True) -> None:
        """Start what is not running: at first, and after something of ours died.

        The judge belongs to whoever evaluates: a build that runs beside leaves it alone.
        """
        with self._starting:
            if self._scratch is None:
                raise InfrastructureFault("the engine is not started")
            starting_judge = judge and self._device is not None and (self._judge is None or not self._judge.alive)
            if starting_judge:
                if self._judge is not None:
                    self._judge.close()
                self._judge = JudgeProcess("cpu" if self._device == "cpu" else "cuda", self._process_environment())
                self._judge.launch()
            if self._forkserver is None or not self._forkserver.alive:
                if self._forkserver is not None:
                    self._forkserver.close()
                self._forkserver = ForkServer(self._process_environment())
                self._forkserver.start()
                self._try_sandbox(self._forkserver)
            if self._builder is None or not self._builder.alive:
                if self._builder is not None:
                    self._builder.close()
                self._builder = self._start_builder(self._forkserver.versions)
            if starting_judge:
                assert self._judge is not None
                self._judge.await_ready()
            described = self._judge.description if self._judge is not None else dict(self._forkserver.versions)
            self._description = {
                **described,
                "device": "none" if self._device is None else self._device.partition(":")[0],
                **_compilers(),
            }

    def _try_sandbox(self, forkserver: ForkServer) -> None:
        assert self._scratch is not None
        spec = {"confinement": self._confinement().to_json(), "scratch": str(self._scratch)}
        self._missing_layers = forkserver.try_on(spec)
        needed = [layer for layer in self._missing_layers if layer not in OPTIONAL]
        if self._require_sandbox and needed:
            forkserver.close()  # or the next evaluation would take it as it is
            raise SandboxIncomplete(
                "a complete sandbox is required, and the kernel refuses: "
                + "; ".join(f"{layer} ({MEANING[layer]})" for layer in needed)
            )

    def _confinement(self, limits: Limits | None = None, *, discover: bool = False) -> Confinement:
        """What a runner may see and use."""
        limits = limits or Limits()
        devices: tuple[str, ...] = ()
        if self._device is not None and self._device.startswith("cuda") and not discover:
            devices = cuda_nodes(self._device)
        return Confinement(
            self._root(devices, limits.disk_bytes),
            memory_bytes=limits.memory_bytes or max(_LEAST_MEMORY_BYTES, _memory_bytes() // 2),
            processes=limits.processes,
            file_bytes=limits.disk_bytes,
        )

    def _build_confinement(self) -> Confinement:
        """What a compiler may see and use: no device, and more room for files."""
        return Confinement(
            self._root((), _BUILD_DISK_BYTES),
            memory_bytes=max(_LEAST_MEMORY_BYTES, _memory_bytes() // 2),
            processes=Limits.processes,
            file_bytes=_BUILD_DISK_BYTES,
        )

    def _root(self, devices: tuple[str, ...], size_bytes: int) -> Root:
        own = Path(__file__).parent.parent
        hidden = [*(own / name for name in _PACKAGES), self._cache_dir, self._scratch]
        return Root(
            visible_paths(_tool_folders()), devices, tuple(str(path) for path in hidden if path is not None), size_bytes
        )

    def _start_builder(self, versions: Mapping[str, str | None]) -> BuilderProcess:
        assert self._scratch is not None
        builder = BuilderProcess(
            cache_dir=self._cache_dir,
            scratch_dir=self._scratch,
            toolchain={
                **versions,
                "python": sys.version,
                **_compilers(),
                "cuda_architectures": cuda_architectures(),
            },
            environment=self._process_environment() | {"TORCH_CUDA_ARCH_LIST": cuda_architectures()},
            confinement=self._build_confinement(),
            slots=self._build_slots,
        )
        builder.start()
        return builder

    def _process_environment(self) -> dict[str, str]:
        """What our own processes inherit: enough to find Python, compilers and one device, and no secret."""
        environment = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        # The packages of this project are found as they were found here, installed or not.
        environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
        environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment.get('PATH', os.defpath)}"
        # Judge and runners share the processors: a thread that spins for work takes time from what is measured.
        environment |= {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "0"}
        # NumPy's BLAS would start a thread per core on import, in a process that is to be forked.
        environment["OPENBLAS_NUM_THREADS"] = "1"
        environment["HOME"] = str(self._scratch)
        # Importing torch.utils.cpp_extension asks whether CUDA is available. Asked of the runtime, that alone
        # would make CUDA unusable in every process forked afterwards; NVML answers without touching it.
        environment["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
        if self._device is not None and self._device.startswith("cuda"):
            # By its name and not by a number: a runner is given this device's node alone, and counts from there.
            environment["CUDA_VISIBLE_DEVICES"] = cuda_uuid(self._device)
        elif self._device == "cpu":
            environment["CUDA_VISIBLE_DEVICES"] = ""
        return environment

    @contextlib.contextmanager
    def _runner(
        self, problem: Problem, source: str, config: EvalConfig, *, discover: bool, reference: bool = False
    ) -> Iterator[_Run]:
        """A runner over its private directory. Whatever happens, it is gone at the end, and its files."""
        # Captured: a build that runs beside may replace either meanwhile.
        builder, forkserver = self._builder, self._forkserver
        if builder is None or forkserver is None:
            raise InfrastructureFault("the engine was closed")
        ours, theirs = socket.socketpair()
        run: _Run | None = None
        session, build_end = builder.open_session(config.limits.build_s)
        log = Capture(config.limits.log_bytes)
        try:
            files = {"model.py": problem.sized_source(config.size)}
            if not reference:
                files["candidate.py"] = source
            spec = {
                "confinement": self._confinement(config.limits, discover=discover).to_json(),
                "scratch": str(self._scratch),
                "files": files,
                "module": "model" if reference else "candidate",
                "class_name": "Model" if reference else "ModelNew",
                "discover": discover,
                "watched": not reference,
                "environment": self._runner_environment(discover=discover),
            }
            process = forkserver.spawn(spec, [theirs.fileno(), build_end.fileno(), log.descriptor])
            # The runner alone holds these ends now, so that its death is the end of all of them.
            theirs.close()
            build_end.close()
            log.close_writer()
            run = _Run(process, forkserver, builder, ours, session, log)
            yield run
        finally:
            theirs.close()
            build_end.close()
            log.close_writer()
            if run is not None:
                with contextlib.suppress(InfrastructureFault):
                    forkserver.kill(run.process)
            ours.close()
            with contextlib.suppress(InfrastructureFault):
                builder.close_session(session)

    def _runner_environment(self, *, discover: bool) -> dict[str, str]:
        own = self._process_environment()
        environment = {
            "PATH": own["PATH"],
            "LANG": "C.UTF-8",
            "CUDA_VISIBLE_DEVICES": "" if discover else own.get("CUDA_VISIBLE_DEVICES", ""),
        }
        return environment | {name: own[name] for name in ("CUDA_HOME", "LD_LIBRARY_PATH") if name in own}

    def _await_discovery(
        self, run: _Run, config: EvalConfig, progress: Callable[[Progress], None], cancelled: Callable[[], bool]
    ) -> _Discovery:
        """Wait until the runner says that it has imported the module, has failed to, or has ended."""
        run.control.settimeout(_POLL_S)
        data, waited_s, begin = b"", 0.0, time.monotonic()
        while len(data) < FRAME_BYTES:
            if cancelled():
                raise EvaluationCancelled
            try:
                part = run.control.recv(FRAME_BYTES - len(data))
            except TimeoutError:
                progress(Progress("building", f"{time.monotonic() - begin:.0f} s"))
                if not run.builder.busy(run.build_session):
                    waited_s += _POLL_S
                if waited_s > config.limits.load_s:
                    return _Discovery.TIMED_OUT
                continue
            except ConnectionError:
                return _Discovery.FAILED
            if not part:
                return _Discovery.FAILED
            data += part
        frame = Frame.decode(data)
        return _Discovery.IMPORTED if frame is not None and frame.kind is FrameKind.READY else _Discovery.FAILED

    def _log_of(self, run: _Run, limit: int = 64 * 1024) -> str:
        """Compiler output, then what the candidate printed; each bounded."""
        parts = [
            f"== building extension {build['name']} ({build['seconds']:.1f} s"
            f"{', cached' if build.get('cached') else ''})\n{build['log'][:limit]}"
            for build in run.builds
        ]
        printed = run.log.text(_DRAIN_S)
        if printed.strip():
            parts.append(f"== printed by the candidate\n{printed}")
        return "\n".join(parts).replace(f"{run.process.directory}/", "")

    def _conclude(
        self, problem: Problem, config: EvalConfig, run: _Run, outcome: dict[str, Any], status: int | None
    ) -> Evaluation:
        """The evaluation, from the judge's outcome, the builder's report and the runner's end."""
        failed = next((build for build in run.builds if "error" in build), None)
        if failed is not None and failed.get("toolchain_missing"):
            raise ToolchainMissing(str(failed["error"]))
        kernels = sorted({name for build in run.builds for name in build.get("kernels", ())})
        message, notes = outcome["message"], list(outcome["notes"])
        verdict = Verdict(outcome["verdict"]) if outcome["verdict"] is not None else None
        if verdict is None:
            verdict, message = explain_exit(status, outcome["stage"])
        elif verdict in (Verdict.RUNTIME_ERROR, Verdict.LOAD_ERROR, Verdict.CONSTRUCT_ERROR):
            message = explain_failure(message, kernels)
        if failed is not None and verdict in (Verdict.LOAD_ERROR, Verdict.CONSTRUCT_ERROR, Verdict.RUNTIME_ERROR):
            verdict, message = _build_verdict(failed)
        elif failed is not None:
            notes.append(f"extension {failed['name']} did not build, and the candidate went on without it")
        missing = [layer for layer in run.process.refused if layer not in OPTIONAL]
        if missing:
            notes.append(f"the kernel refused these layers of isolation: {', '.join(missing)}")
        return Evaluation(
            verdict=verdict,
            message=message,
            problem=problem.id,
            problem_version=problem.version,
            device=config.device_kind,
            size=config.size,
            precision=config.precision,
            baseline=config.baseline,
            gradients=Gradients(outcome["gradients"]),
            speedup=outcome["speedup"],
            speedup_interval=_interval(outcome["speedup_interval"]),
            speedup_training=outcome["speedup_training"],
            speedup_training_interval=_interval(outcome["speedup_training_interval"]),
            latency_ms=_latency(outcome["latency_ms"]),
            latency_training_ms=_latency(outcome["latency_training_ms"]),
            errors=ErrorFigures(**outcome["errors"]),
            hints=hints_for(verdict, message),
            notes=tuple(notes),
            log=self._log_of(run, config.limits.log_bytes),
            details=outcome["details"],
            samples={
                track: SampleSeries(**{name: tuple(values) for name, values in series.items()})
                for track, series in outcome["samples"].items()
            },
            environment=self.environment,
            stage_s=outcome["stage_s"],
            peak_memory_bytes=outcome["peak_memory_bytes"],
        )

    def _evaluation(
        self,
        problem: Problem,
        config: EvalConfig,
        verdict: Verdict,
        message: str,
        *,
        log: str,
        stage_s: Mapping[str, float],
    ) -> Evaluation:
        """An evaluation that ended before the device was needed."""
        return Evaluation(
            verdict=verdict,
            message=message,
            problem=problem.id,
            problem_version=problem.version,
            device=config.device_kind,
            size=config.size,
            precision=config.precision,
            baseline=config.baseline,
            hints=hints_for(verdict, message),
            log=log,
            environment=self.environment,
            stage_s=stage_s,
        )


def _enclosure(process: RunnerProcess) -> dict[str, Any]:
    return {"pid": process.pid, "group": process.group}


def _tool_folders() -> list[str]:
    """Folders outside of the usual ones that compilers and CUDA's libraries may be in."""
    compiler = shutil.which(os.environ.get("CXX", "c++"))
    return [
        *os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep),
        *([os.environ["CUDA_HOME"]] if "CUDA_HOME" in os.environ else []),
        *(str(Path(tool).parent.parent) for tool in (nvcc_path(), compiler) if tool is not None),
    ]


def _memory_bytes() -> int:
    """The machine's memory."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _build_verdict(build: Mapping[str, Any]) -> tuple[Verdict, str]:
    """The verdict of a failed build, and its message."""
    verdict = Verdict.TIMEOUT if build.get("timed_out") else Verdict.COMPILE_ERROR
    return verdict, str(build["error"])


def _out_of_memory_kills() -> int:
    """How many processes the kernel has killed for want of memory since it started; -1 where it does not say."""
    for line in Path("/proc/vmstat").read_text().splitlines():
        name, _, value = line.partition(" ")
        if name == "oom_kill":
            return int(value)
    return -1


def _covers(known: str, wanted: str) -> bool:
    return known == wanted or (wanted == "cuda" and known.startswith("cuda:"))


def _interval(data: Mapping[str, float] | None) -> Interval | None:
    return None if data is None else Interval(**data)


def _latency(data: Mapping[str, float] | None) -> Latency | None:
    return None if data is None else Latency(**data)


def _remove(directory: Path) -> None:
    """Delete a folder, also where its owner has locked parts of it."""

    def unlock(function: Callable[..., Any], path: str, _error: object) -> None:
        with contextlib.suppress(OSError):
            Path(path).parent.chmod(0o700)
            if not Path(path).is_symlink():
                Path(path).chmod(0o700)
            function(path)

    shutil.rmtree(directory, onerror=unlock)
    if directory.exists():
        # What could not be listed before can be now.
        shutil.rmtree(directory, ignore_errors=True)


@cache
def _compilers() -> dict[str, str | None]:
    nvcc = nvcc_path()
    return {
        "compiler": _version_line([os.environ.get("CXX", "c++"), "--version"]),
        "nvcc": None if nvcc is None else _version_line([nvcc, "--version"]),
    }


def _version_line(command: list[str]) -> str | None:
    """The line of a compiler's ``--version`` that identifies it."""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        lines = subprocess.run(command, capture_output=True, text=True, timeout=30).stdout.strip().splitlines()
        return lines[-1] if command[0].endswith("nvcc") and lines else lines[0] if lines else None
    return None
