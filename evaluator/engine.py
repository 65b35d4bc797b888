"""The evaluator's interface: build a candidate, evaluate it, get an ``Evaluation``. Torch-free.

An engine supervises the *judge* (one, trusted), the *builder* (one, trusted) and the process that *runners* are forked
from. It never touches CUDA itself. It restarts processes that die.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from evaluator.artifact_store import StoreAddress
from evaluator.candidates.candidate import Candidate
from evaluator.config import EvalConfig
from evaluator.devices.discovery import (
    available_devices,
    has_cxx_compiler,
    has_nvcc,
)
from evaluator.diagnosis.session import Workplace, diagnose, tool_path
from evaluator.errors import (
    DeviceUnavailable,
    ProblemError,
    ToolchainMissing,
)
from evaluator.evaluation import Evaluation
from evaluator.problems.problem import Problem
from evaluator.processes.compile_cache import CompileCache
from evaluator.processes.runner_pool import RunnerPool
from evaluator.processes.trusted_processes import TrustedProcesses
from evaluator.progress import NO_CALLBACKS, Callbacks, Progress, never_cancelled
from evaluator.results.compiled_baselines import CompiledBaselines
from evaluator.sandbox.layers import SandboxLayer
from evaluator.stages.build_stage import BuildReport, build_candidate
from evaluator.stages.evaluation_stage import EvaluationStage, GroupResults
from evaluator.task import EvaluationTask
from kerneljudge.terms.findings import Diagnosis, Tool

__all__ = [
    "NO_CALLBACKS",
    "BuildReport",
    "Callbacks",
    "Engine",
    "GroupResults",
    "Progress",
    "SandboxLayer",
    "available_devices",
    "has_nvcc",
]

_CACHE_BYTES: Final = 20 * 2**30
_COMPILED_SHARE: Final = 8
"""For so many bytes of built extensions, one byte of files that candidates' own compilers made is kept."""


class Engine:
    """Builds and evaluates on one device. One evaluation at a time; builds may run beside it.

    - ``device``: ``cpu``, ``cuda`` or ``cuda:N``; ``None`` for an engine that only builds.
    - ``cache_dir`` holds about ``cache_bytes`` of built extensions at the most, and an eighth as much of files that
      Triton and ``torch.compile`` made. Several engines may share it.
    - ``artifact_store``, where there is one, has the extensions of other machines.
    - ``prepares_next``: the processes of the next build and evaluation are started ahead, which shortens all but the
      first. On a CPU, ``start_ahead`` starts those of the evaluation. On CUDA the baseline's process is kept for the
      next evaluation of the same problem under the same settings.
    - ``require_sandbox``: the engine does not start where the kernel refuses a layer of the sandbox.
    """

    def __init__(
        self,
        *,
        device: str | None,
        cache_dir: Path,
        cache_bytes: int = _CACHE_BYTES,
        scratch_dir: Path | None = None,
        build_slots: int | None = None,
        require_sandbox: bool = False,
        artifact_store: StoreAddress | None = None,
        prepares_next: bool = True,
    ) -> None:
        self._device = device
        self._cache_dir = cache_dir.absolute()
        self._artifact_store = artifact_store
        self._scratch_base = scratch_dir
        self._processes = TrustedProcesses(
            device,
            cache_dir=self._cache_dir,
            cache_bytes=cache_bytes,
            build_slots=build_slots,
            require_sandbox=require_sandbox,
            artifact_store=artifact_store,
        )
        self._pool = RunnerPool(self._processes, prepares_next=prepares_next)
        self._evaluations = EvaluationStage(
            self._processes,
            self._pool,
            CompileCache(self._cache_dir / "compiled", cache_bytes // _COMPILED_SHARE),
            CompiledBaselines(self._cache_dir / "baselines"),
        )
        self._scratch: Path | None = None
        self._evaluating = threading.Lock()

    def __enter__(self) -> Engine:
        self.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    @property
    def environment(self) -> Mapping[str, Any]:
        """Device, driver and versions, as context of a result. Empty before ``start``."""
        return dict(self._processes.description)

    @property
    def layers(self) -> tuple[SandboxLayer, ...]:
        """Every layer of the sandbox, as ``start`` found it. Empty before."""
        return self._processes.layers

    @property
    def tools(self) -> frozenset[Tool]:
        """The tools of this machine for ``diagnose``; they support CUDA alone."""
        if self._device is None or self._device == "cpu":
            return frozenset()
        return frozenset(tool for tool in Tool if tool_path(tool) is not None)

    @property
    def process_ids(self) -> dict[str, int]:
        """The engine's own processes that are alive, by role.

        Of the processes that wait for an evaluation, ``candidate`` and ``baseline`` hold nothing but a context on the
        device. A ``kept baseline`` holds its model as well. A ``discoverer`` waits for a build.
        """
        return self._processes.process_ids | self._pool.process_ids

    def start(self) -> None:
        """Start every process and wait until it is ready.

        Raises:

        - ``DeviceUnavailable`` where the device is not on this machine;
        - ``ToolchainMissing`` where there is no C++ compiler, or no client for the artifact store;
        - ``SandboxIncomplete`` where a complete sandbox is required and the kernel refuses a layer;
        - ``InfrastructureFault`` where a process does not start.
        """
        if self._device is not None and not any(_covers(known, self._device) for known in available_devices()):
            visible = os.environ.get("CUDA_VISIBLE_DEVICES")
            raise DeviceUnavailable(
                f"no device {self._device} on this machine; there is {', '.join(available_devices())}"
                + ("" if visible is None else f" (CUDA_VISIBLE_DEVICES is {visible!r})")
            )
        if not has_cxx_compiler():
            raise ToolchainMissing("no C++ compiler on this machine: install g++ (or set CXX)")
        if self._artifact_store is not None:
            self._artifact_store.require_client()
        if self._scratch is None:
            # The parent of every private directory: made so that only this user may enter.
            self._scratch = Path(tempfile.mkdtemp(prefix="kerneljudge-", dir=self._scratch_base))
        try:
            self._processes.start(self._scratch, self._pool.leave_device)
        except BaseException:
            # ``with Engine(...)`` does not come to its end where its start fails.
            self.close()
            raise

    def start_ahead(self) -> None:
        """Fork the processes of the next evaluation, where that would have taken processors from the latest one.

        Call it once no caller waits for the latest result any more; the next evaluation works without it, too.
        """
        self._pool.start_ahead()

    def close(self) -> None:
        """End every process and remove the scratch directory. Idempotent."""
        self._pool.close()
        self._processes.close()
        if self._scratch is not None:
            _remove(self._scratch)
            self._scratch = None

    def keeps_baseline(self, config: EvalConfig) -> bool:
        """Whether an evaluation gains from an earlier one of the same problem under the same settings."""
        return self._pool.keeps_baseline(config)

    def build(
        self, problem: Problem, candidate: Candidate, config: EvalConfig, callbacks: Callbacks = NO_CALLBACKS
    ) -> BuildReport:
        """Import the candidate without a device, to find its extensions and build them.

        A finding is a verdict only where the device could not change it. That is a compile error, or a build or an
        import that takes too long. Any other failure of the import may come from the missing device, and is left to
        ``evaluate``. So is code that this machine's toolkit cannot compile. A candidate that breaks a rule about its
        source is ``rejected`` before. Raises ``EvaluationCancelled``, ``InfrastructureFault`` and ``ProblemError``.
        """
        return build_candidate(self._processes, self._pool, EvaluationTask(problem, candidate, config), callbacks)

    def evaluate(
        self, problem: Problem, candidate: Candidate, config: EvalConfig, callbacks: Callbacks = NO_CALLBACKS
    ) -> Evaluation:
        """Judge the candidate on this engine's device.

        Raises ``DoesNotFit``, ``ProblemError``, ``DeviceUnavailable``, ``ToolchainMissing``, ``EvaluationCancelled``
        and ``InfrastructureFault``. The candidate's own errors are in the ``Evaluation``.
        """
        if self._device is None:
            raise DeviceUnavailable("this engine only builds: it has no device")
        refusal = problem.refuses_baseline(config) or problem.refuses_rules(config.rules)
        if refusal is not None:
            raise ProblemError(refusal)
        with self._evaluating:
            return self._evaluations.evaluate(EvaluationTask(problem, candidate, config), callbacks)

    def max_group_size(self, problem: Problem, config: EvalConfig) -> int:
        """The most candidates for which ``evaluate_group`` saves time with these settings; 1: none."""
        return self._evaluations.max_group_size(problem, config)

    def evaluate_group(
        self, problem: Problem, candidates: Sequence[Candidate], config: EvalConfig, callbacks: Sequence[Callbacks]
    ) -> GroupResults:
        """Judge several candidates, each by its own figures, against one baseline whose calls they share.

        Yields a result for each candidate, by its index, in the order in which they are known: the evaluation, or the
        error that ``evaluate`` would have raised. Each candidate has its ``callbacks``. The engine waits while the
        caller holds a result, and is reserved until the iterator ends or is closed.

        Raises ``InfrastructureFault`` and ``DeviceUnavailable``, once no process of the group is left. Either counts
        for the first candidate without a result, even where it concerns all.

        One candidate cannot decide about another. A candidate that passes among others has passed; all others are
        evaluated alone.
        """
        if self._device is None:
            raise DeviceUnavailable("this engine only builds: it has no device")
        with self._evaluating:
            tasks = [EvaluationTask(problem, candidate, config) for candidate in candidates]
            yield from self._evaluations.evaluate_group(tasks, callbacks)

    def diagnose(
        self,
        problem: Problem,
        candidate: Candidate,
        config: EvalConfig,
        tool: Tool,
        *,
        program: str | None = None,
        cancelled: Callable[[], bool] = never_cancelled,
    ) -> Diagnosis:
        """Run the candidate once below ``tool``, in the sandbox, on this engine's device.

        Its extensions are built once more, with line information. Raises ``DeviceUnavailable``, ``ToolchainMissing``
        where the tool is missing, ``EvaluationCancelled`` and ``InfrastructureFault``.
        """
        if self._device is None:
            raise DeviceUnavailable("this engine only builds: it has no device")
        with self._evaluating:
            self._pool.leave_device()  # the tool needs more memory of the device than an evaluation does
            self._processes.ensure_alive(before_judge=None)
            builder = self._processes.start_diagnosis_builder()
            environment = self._processes.process_environment
            assert environment is not None
            session, build_end = builder.open_session(config.limits.build_s)
            try:
                workplace = Workplace(
                    confinement=environment.runner_confinement(config.limits, with_device=True),
                    environment=environment.environment,
                    inner=environment.runner_environment(with_device=True),
                    scratch=environment.scratch_dir,
                    build_end=build_end,
                    builds=lambda: builder.report(session),
                )
                task = EvaluationTask(problem, candidate, config)
                return diagnose(task, tool, workplace, program=program, cancelled=cancelled)
            finally:
                build_end.close()
                builder.close()


def _covers(known: str, wanted: str) -> bool:
    return known == wanted or (wanted == "cuda" and known.startswith("cuda:"))


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
        # Folders that could not be listed before can be now.
        shutil.rmtree(directory, ignore_errors=True)
