"""The evaluator's interface: build a candidate, evaluate it, get an ``Evaluation``. Torch-free.

An engine supervises the *judge* (one, trusted), the *builder* (one, trusted) and the process that *runners* are forked
from. It never touches CUDA itself. It restarts processes that die.
"""

from __future__ import annotations

import contextlib
import logging
import os
import resource
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from evaluator.artifact_store import StoreAddress
from evaluator.builder.client import BuilderProcess
from evaluator.builder.recipes import find_prepared
from evaluator.builder.resources import KernelResources
from evaluator.candidates.candidate import Candidate
from evaluator.config import EvalConfig, Limits
from evaluator.devices.discovery import (
    available_devices,
    compiler_versions,
    cuda_architectures,
    default_build_slots,
    has_cxx_compiler,
    has_nvcc,
)
from evaluator.devices.machine_memory import out_of_memory_kills
from evaluator.diagnosis.findings import Diagnosis, Tool
from evaluator.diagnosis.session import Workplace, diagnose, tool_path
from evaluator.errors import (
    DeviceUnavailable,
    DoesNotFit,
    DoNotFitTogether,
    EvaluationCancelled,
    EvaluatorError,
    InfrastructureFault,
    ProblemError,
    SandboxIncomplete,
    ToolchainMissing,
)
from evaluator.evaluation import Evaluation, Gradients, Verdict
from evaluator.judge.client import Contact, JudgeProcess
from evaluator.problems.problem import Problem
from evaluator.processes.compile_cache import CompileCache
from evaluator.processes.environment import ProcessEnvironment
from evaluator.processes.runner_handle import Discovery, RunnerHandle, begin_runner
from evaluator.results.assemble import (
    build_details,
    conclude,
    conclude_early,
    failed_build,
    kernel_resources,
    verdict_of_build,
)
from evaluator.results.compiled_baselines import CompiledBaselines
from evaluator.sandbox.client import ForkServer
from evaluator.sandbox.layers import MEANING, OPTIONAL, Layer, SandboxLayer
from evaluator.sandbox.priority import was_starved

__all__ = ["BuildReport", "Engine", "Progress", "SandboxLayer", "available_devices", "has_nvcc"]

_DESCRIPTORS: Final = 2**16
_EXIT_S: Final = 15.0
"""The wait for the report of an ended process, which comes once its group is empty and its files are gone."""
_CACHE_BYTES: Final = 20 * 2**30
_COMPILED_SHARE: Final = 8
"""For so many bytes of built extensions, one byte of files that candidates' own compilers made is kept."""
_KEEPS_BASELINES_ON: Final = frozenset({"cuda"})
"""Devices on which a baseline's process is reused. On a CPU, a process that has served for a while is faster than a new
one with the same model. The difference is 4 % (a small linear layer) to 10 % (a softmax), mean of 14 evaluations on two
cores.
"""
_FORKS_BESIDE: Final = frozenset({"cuda"})
"""Devices on which forking the processes of the next evaluation takes nothing from this one. Elsewhere it waits for
``start_ahead``: on two processors, constructing took a third less then.
"""
_MOST_EVALUATIONS: Final = 32
"""The most evaluations with the same process as their baseline, so that no fault of one process lasts."""

_MOST_TOGETHER: Final = 4
"""The most candidates that are evaluated together. With twice as many, on an H200, candidates of two problems took 5
and 17 % less. Those of three problems took 7 to 11 % more.
"""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Progress:
    """The progress of an evaluation. ``share`` (0 to 1) is within the stage."""

    stage: str
    message: str = ""
    share: float | None = None


@dataclass(frozen=True)
class BuildReport:
    """The findings of the build stage. ``evaluation`` is set where the verdict is already final.

    ``extensions`` counts the built ones, ``cached`` those of them that were in the cache. ``toolchain_gap`` names the
    part that this machine lacks, where something could not be built for that reason. ``kernels``: the resources of the
    CUDA kernels, as far as they are known. ``builds``: the details of each build, as in ``Evaluation.details``;
    ``failed``: the number that does not compile.
    """

    evaluation: Evaluation | None
    seconds: float
    extensions: int
    cached: int
    log: str
    toolchain_gap: str | None = None
    kernels: tuple[KernelResources, ...] = ()
    builds: tuple[Mapping[str, Any], ...] = ()
    failed: int = 0


def ignore_progress(_progress: Progress) -> None:
    """Ignore the progress."""


def never_cancelled() -> bool:
    return False


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
        self._require_sandbox = require_sandbox
        self._cache_dir = cache_dir.absolute()
        self._cache_bytes = cache_bytes
        self._compile_cache = CompileCache(self._cache_dir / "compiled", cache_bytes // _COMPILED_SHARE)
        self._artifact_store = artifact_store
        self._prepares_next = prepares_next
        self._scratch_base = scratch_dir
        self._build_slots = build_slots or default_build_slots()
        self._judge: JudgeProcess | None = None
        self._builder: BuilderProcess | None = None
        self._forkserver: ForkServer | None = None
        self._waiting: _Team | None = None
        self._next: tuple[EvalConfig, int] | None = None
        """The settings and the number of candidates of the latest evaluation, while runners for the next are put off.
        """
        self._kept: _KeptBaseline | None = None
        self._discoverer: tuple[RunnerHandle, Limits] | None = None
        """A runner that waits to find the extensions of the next module, and the limits that it was made for."""
        self._too_large: set[tuple[str, str, EvalConfig]] = set()
        """Groups of candidates that do not fit together: problem, version, settings."""
        self._scratch: Path | None = None
        self._surroundings: ProcessEnvironment | None = None
        self._evaluating = threading.Lock()
        self._starting = threading.RLock()
        self._description: dict[str, Any] = {}
        self._layers: tuple[SandboxLayer, ...] = ()

    def __enter__(self) -> Engine:
        self.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    @property
    def environment(self) -> Mapping[str, Any]:
        """Device, driver and versions, as context of a result. Empty before ``start``."""
        return dict(self._description)

    @property
    def layers(self) -> tuple[SandboxLayer, ...]:
        """Every layer of the sandbox, as ``start`` found it. Empty before."""
        return self._layers

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
        roles = {"judge": self._judge, "builder": self._builder, "forkserver": self._forkserver}
        found = {
            role: process.pid
            for role, process in roles.items()
            if process is not None and process.alive and process.pid is not None
        }
        runners: dict[str, RunnerHandle] = {}
        waiting, kept, discoverer = self._waiting, self._kept, self._discoverer
        if waiting is not None:
            first, *more = waiting.candidates
            runners |= {"candidate": first, "baseline": waiting.baseline}
            runners |= {f"candidate {number}": each for number, each in enumerate(more, start=2)}
        if kept is not None:
            runners["kept baseline"] = kept.runner
        if discoverer is not None:
            runners["discoverer"] = discoverer[0]
        pids = {role: runner.pid for role, runner in runners.items()}
        return found | {role: pid for role, pid in pids.items() if pid is not None}

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
        _raise_descriptor_limit()
        if self._scratch is None:
            # The parent of every private directory: made so that only this user may enter.
            self._scratch = Path(tempfile.mkdtemp(prefix="kerneljudge-", dir=self._scratch_base))
        try:
            if self._surroundings is None:
                self._surroundings = ProcessEnvironment(
                    self._device, cache_dir=self._cache_dir, scratch_dir=self._scratch
                )
            self._ensure_alive()
        except BaseException:
            # ``with Engine(...)`` does not come to its end where its start fails.
            self.close()
            raise

    def start_ahead(self) -> None:
        """Fork the processes of the next evaluation, where that would have taken processors from the latest one.

        Call it once no caller waits for the latest result any more; the next evaluation works without it, too.
        """
        following, self._next = self._next, None
        if following is not None and self._waiting is None:
            config, count = following
            self._waiting = self._begin_next_team(config, count, (), None)

    def close(self) -> None:
        """End every process and remove the scratch directory. Idempotent."""
        self._next = None
        self._end_waiting()
        self._end_kept()
        self._end_discoverer()
        for process in (self._forkserver, self._judge, self._builder):
            if process is not None:
                process.close()
        self._forkserver = self._judge = self._builder = None
        self._surroundings = None
        if self._scratch is not None:
            _remove(self._scratch)
            self._scratch = None

    def _end_waiting(self) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting.close()

    def _end_kept(self) -> None:
        kept, self._kept = self._kept, None
        if kept is not None:
            kept.runner.close()

    def _end_discoverer(self) -> None:
        discoverer, self._discoverer = self._discoverer, None
        if discoverer is not None:
            discoverer[0].close()

    def keeps_baseline(self, config: EvalConfig) -> bool:
        """Whether an evaluation gains from an earlier one of the same problem under the same settings."""
        return self._prepares_next and config.device_kind in _KEEPS_BASELINES_ON and config.baseline == "eager"

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

        A finding is a verdict only where the device could not change it. That is a compile error, or a build or an
        import that takes too long. Any other failure of the import may come from the missing device, and is left to
        ``evaluate``. So is code that this machine's toolkit cannot compile. Raises ``EvaluationCancelled`` and
        ``InfrastructureFault``.
        """
        begin = time.monotonic()
        self._ensure_alive(judge=False)
        progress(Progress("building", "looking for extensions"))
        runner = self._take_discoverer(config)
        try:
            runner.await_forked()
            _assign(runner, problem, config, candidate.source)
            discovery = runner.await_discovery(
                config.limits.load_s,
                lambda passed_s: progress(Progress("building", f"{passed_s:.0f} s")),
                cancelled,
            )
            if discovery is Discovery.TIMED_OUT and was_starved(runner.process.pid, time.monotonic() - begin):
                raise InfrastructureFault("importing the module had hardly a processor: the machine is busy otherwise")
            runner.learn_builds()
            builds, log = runner.builds, runner.log(config.limits.log_bytes)
        finally:
            runner.close()
            _require_gone(runner)
        self._prepare_discoverer(config)
        seconds = time.monotonic() - begin
        failed = failed_build(builds)
        ending: tuple[Verdict, str] | None = None
        if discovery is Discovery.TIMED_OUT:
            ending = (
                Verdict.TIMEOUT,
                f"importing the module took longer than {config.limits.load_s:.0f} s, compilers not counted",
            )
        # The device's machine may compile more than this one, and a candidate may handle a failed build.
        elif discovery is Discovery.FAILED and failed is not None and not failed.get("toolchain_missing"):
            ending = verdict_of_build(failed)
        evaluation = None
        if ending is not None:
            evaluation = conclude_early(
                problem,
                candidate,
                config,
                *ending,
                log=log,
                stage_s={"building": seconds},
                environment=self.environment,
            )
        return BuildReport(
            evaluation,
            seconds,
            extensions=sum(1 for build in builds if "error" not in build),
            cached=sum(1 for build in builds if build.get("cached")),
            log=log,
            toolchain_gap=next((str(build["error"]) for build in builds if build.get("toolchain_missing")), None),
            kernels=kernel_resources(builds),
            builds=tuple(build_details(builds)),
            failed=sum(1 for build in builds if "error" in build and not build.get("toolchain_missing")),
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

        Raises ``DoesNotFit``, ``ProblemError``, ``DeviceUnavailable``, ``ToolchainMissing``, ``EvaluationCancelled``
        and ``InfrastructureFault``. The candidate's own errors are in the ``Evaluation``.
        """
        if self._device is None:
            raise DeviceUnavailable("this engine only builds: it has no device")
        refusal = problem.refuses_baseline(config)
        if refusal is not None:
            raise ProblemError(refusal)
        with self._evaluating:
            return self._evaluate_and_compare(problem, candidate, config, progress, cancelled)

    def most_together(self, problem: Problem, config: EvalConfig) -> int:
        """The most candidates for which ``evaluate_together`` saves time with these settings; 1: none."""
        gains = self.keeps_baseline(config) and config.sampling.max_samples > 0 and not config.compare_compiled
        return _MOST_TOGETHER if gains and (problem.id, problem.version, config) not in self._too_large else 1

    def evaluate_together(
        self,
        problem: Problem,
        candidates: Sequence[Candidate],
        config: EvalConfig,
        *,
        progress: Callable[[int, Progress], None],
        cancelled: Callable[[int], bool],
        done: Callable[[int, Evaluation | EvaluatorError], None],
    ) -> None:
        """Judge several candidates, each by its own figures, against one baseline whose calls they share.

        ``done`` is called once for each candidate, by its index. It gets the evaluation as soon as that is known, or
        the error that ``evaluate`` would have raised. An ``InfrastructureFault`` or ``DeviceUnavailable`` ends this
        method. It is reported for one candidate even where it concerns all, and ``done`` is not called for the
        candidates after it.

        One candidate cannot decide about another. A candidate that passes among others has passed; all others are
        evaluated alone.
        """
        if self._device is None:
            raise DeviceUnavailable("this engine only builds: it has no device")
        with self._evaluating:
            left = dict(enumerate(candidates))
            firsts: dict[int, _First] = {}
            refusal = problem.refuses_baseline(config)
            if refusal is None and 1 < len(left) <= self.most_together(problem, config):
                try:
                    firsts = self._evaluate_group(problem, candidates, config, progress, cancelled)
                except (InfrastructureFault, DeviceUnavailable) as error:
                    # Reported for one: a faulty candidate shows in time, because a candidate with a fault is evaluated
                    # alone.
                    done(0, error)
                    return
            for index, (evaluation, doubt) in firsts.items():
                if not doubt:
                    del left[index]
                    done(index, EvaluationCancelled() if cancelled(index) else evaluation)
            for index, candidate in left.items():

                def report(step: Progress, index: int = index) -> None:
                    progress(index, step)

                try:
                    if refusal is not None:
                        raise ProblemError(refusal)
                    if cancelled(index):
                        raise EvaluationCancelled
                    evaluation = self._evaluate_and_compare(
                        problem, candidate, config, report, partial(cancelled, index), firsts.get(index)
                    )
                except EvaluatorError as error:
                    done(index, error)
                    if isinstance(error, InfrastructureFault | DeviceUnavailable):
                        return
                else:
                    done(index, evaluation)

    def _evaluate_and_compare(
        self,
        problem: Problem,
        candidate: Candidate,
        config: EvalConfig,
        progress: Callable[[Progress], None],
        cancelled: Callable[[], bool],
        known: _First | None = None,
    ) -> Evaluation:
        """Evaluate it, and compare one that passes with the compiled reference where the settings say so."""
        evaluation = self._evaluate_surely(problem, candidate, config, progress, cancelled, known)
        if not config.compare_compiled or config.baseline != "eager":
            return evaluation

        def measure(reference: Candidate, its_config: EvalConfig) -> Evaluation:
            def report(step: Progress) -> None:
                progress(Progress("comparing", f"torch.compile, {step.stage}: {step.message}", step.share))

            return self._evaluate_surely(problem, reference, its_config, report, cancelled)

        return CompiledBaselines(self._cache_dir / "baselines").compare(evaluation, problem, config, measure)

    def _evaluate_group(
        self,
        problem: Problem,
        candidates: Sequence[Candidate],
        config: EvalConfig,
        progress: Callable[[int, Progress], None],
        cancelled: Callable[[int], bool],
    ) -> dict[int, _First]:
        """Return the evaluations of the candidates that passed among the others, by index.

        Raises ``InfrastructureFault`` and ``DeviceUnavailable``.
        """

        def all_cancelled() -> bool:
            return all(cancelled(index) for index in range(len(candidates)))

        try:
            found = self._evaluate(problem, candidates, config, progress, all_cancelled)
        except (InfrastructureFault, DeviceUnavailable):
            raise
        except EvaluatorError as error:
            # The evaluation of each alone shows which one has the fault.
            _log.info("candidates are evaluated one by one, since together they could not be: %s", error)
            if isinstance(error, DoNotFitTogether):
                self._too_large.add((problem.id, problem.version, config))
            return {}
        return {index: first for index, first in enumerate(found) if first is not None}

    def _evaluate_surely(
        self,
        problem: Problem,
        candidate: Candidate,
        config: EvalConfig,
        progress: Callable[[Progress], None],
        cancelled: Callable[[], bool],
        known: _First | None = None,
    ) -> Evaluation:
        """Evaluate it, unless a first evaluation is ``known``, and evaluate it again where that one is in doubt.

        The second evaluation has new processes on both sides. Two reasons call for it. Time seemed to be left out, so
        that the figures were corrected or the candidate was rejected. Or there was activity on the device, possibly of
        a foreign process. Either happens by chance now and then, and seldom twice; a candidate that does leave time out
        does so again.
        """
        first, doubt = known or self._evaluate_alone(problem, candidate, config, progress, cancelled)
        if not doubt:
            return first
        self._end_kept()
        try:
            again, _ = self._evaluate_alone(problem, candidate, config, progress, cancelled)
        except (DoesNotFit, InfrastructureFault, ProblemError) as error:
            _log.warning("a second evaluation could not be made: %s", error)
            note = f"a second evaluation, since {doubt}, could not be made: {error}"
            return replace(first, notes=(*first.notes, note))
        total_s = first.stage_s["total"] + again.stage_s["total"]
        note = f"evaluated twice, since in a first evaluation {doubt}"
        return replace(
            again,
            notes=(*again.notes, note),
            stage_s={**again.stage_s, "total": total_s},
            details={**again.details, "first_evaluation": _in_short(first)},
        )

    def _evaluate_alone(
        self,
        problem: Problem,
        candidate: Candidate,
        config: EvalConfig,
        progress: Callable[[Progress], None],
        cancelled: Callable[[], bool],
    ) -> _First:
        def report(_index: int, step: Progress) -> None:
            progress(step)

        waiting = self._waiting
        others_wait = waiting is not None and len(waiting.candidates) > 1
        found: _First | None = None
        try:
            (found,) = self._evaluate(problem, [candidate], config, report, cancelled)
        except DoesNotFit:
            if not others_wait:
                raise
        if found is None or (others_wait and found[0].verdict is Verdict.OUT_OF_MEMORY):
            # There is more room without the processes that wait for a larger session.
            self._end_waiting()
            (found,) = self._evaluate(problem, [candidate], config, report, cancelled)
        assert found is not None
        return found

    def _evaluate(
        self,
        problem: Problem,
        candidates: Sequence[Candidate],
        config: EvalConfig,
        progress: Callable[[int, Progress], None],
        cancelled: Callable[[], bool],
    ) -> list[_First | None]:
        """Return each candidate's evaluation, and the doubt about it; ``None`` for one to be evaluated alone."""
        self._ensure_alive()
        judge = self._judge
        assert judge is not None
        begin = time.monotonic()
        kills_before = out_of_memory_kills()
        kept = self._take_kept(problem, config, len(candidates))
        held = [] if kept is None else [kept.runner]
        try:
            team, spare = self._take_team(config, len(candidates), cancelled)
            held += [*team.candidates, team.baseline, *spare]
            evaluations = len(candidates) + (0 if kept is None else kept.evaluations)
            runners = team.candidates
            # Where a baseline is kept, the team's own is left for the evaluation that needs it.
            baseline = team.baseline if kept is None else kept.runner
            spare_baseline = None if kept is None else team.baseline
            beside = config.device_kind in _FORKS_BESIDE
            judge.begin(waiting=len(runners) + 1)

            compilers = [
                _Compiler(runner, CompileCache.key(problem, config, candidate.source, self._description))
                for runner, candidate in zip(runners, candidates, strict=True)
            ]

            def assign() -> None:
                for compiler, candidate in zip(compilers, candidates, strict=True):
                    self._assign_compiled(compiler, problem, config, candidate.source)
                if kept is None:
                    _assign(baseline, problem, config, None)
                else:
                    baseline.concern()
                if not beside:
                    self._next = config, len(runners)
                    return
                for each in (*spare, spare_baseline):
                    if each is not None:
                        held.remove(each)
                # The processes of the next evaluation are forked while the candidates of this one are loaded and
                # constructed. They come to the device while these are verified.
                self._waiting = self._begin_next_team(config, len(runners), spare, spare_baseline)
                if self._waiting is not None:
                    self._try_next_team(self._waiting.await_forked)

            keeps_baseline = False
            try:
                judge.begin_evaluation(
                    problem,
                    config,
                    [_contact(runner) for runner in runners],
                    _contact(baseline) if kept is None else None,
                    # Spare ones are there already.
                    contexts=len(runners) + (spare_baseline is None) if self._prepares_next and beside else 0,
                    spare=len(spare),
                    keeps=self.keeps_baseline(config) and evaluations < _MOST_EVALUATIONS,
                )
                found = judge.await_found(
                    len(candidates) * (config.limits.total_s + config.limits.build_s),
                    lambda index, stage, message, share: progress(index, Progress(stage, message, share)),
                    cancelled,
                    assign,
                    self._admit,
                    lambda: self._settle(cancelled),
                )
                self._admit()  # where nothing was timed, they have been told to wait until now
                outcomes: list[dict[str, Any]] = found["outcomes"]
                # Of several, one without a verdict may as well be stopped, and is evaluated alone in any case.
                ends = len(runners) == 1 and outcomes[0]["verdict"] is None
                statuses = [runner.forkserver.poll(runner.process, _EXIT_S if ends else 0) for runner in runners]
                keeps_baseline = found["keeps_baseline"]
            finally:
                # The judge frees the shared memory once no process maps it, however this ended.
                ended = [*runners] if keeps_baseline else [*runners, baseline]
                for each in ended:
                    each.begin_kill()  # a context takes a while to go
                for each in ended:
                    each.kill()
                judge.clean_up(keeps_baseline=keeps_baseline)
                for each in ended:
                    _require_gone(each)  # the next evaluation must not be measured beside it, however this one ended
            for compiler, outcome in zip(compilers, outcomes, strict=True):
                self._keep_compiled(compiler, outcome, alone=len(compilers) == 1)
            killed_by_kernel = out_of_memory_kills() != kills_before
            for runner, status in zip(runners, statuses, strict=True):
                if status == signal.SIGKILL and runner.process.killed_for_others:
                    raise InfrastructureFault("the machine ran out of memory, and the candidate was within its limit")
                if status == signal.SIGKILL and not (runner.process.out_of_memory or killed_by_kernel):
                    # Not the kernel for want of memory, nor the candidate, because no process can kill process 1 from
                    # inside its namespace. It was another process of this machine.
                    raise InfrastructureFault("the candidate's process was killed from outside")
            if keeps_baseline:
                held.remove(baseline)
                self._kept = _KeptBaseline(baseline, problem, config, team.made_for, evaluations)
            total_s = (time.monotonic() - begin) / len(candidates)
            concluded: list[_First | None] = []
            for candidate, runner, outcome, status in zip(candidates, runners, outcomes, statuses, strict=True):
                if len(candidates) > 1 and not _stands_among_others(outcome):
                    concluded.append(None)
                    continue
                runner.learn_builds()
                outcome["stage_s"]["total"] = total_s
                doubt = _doubt(
                    outcome.pop("put_back"),
                    clocks_disagree=outcome.pop("clocks_disagree"),
                    device_was_busy=outcome.pop("device_was_busy"),
                )
                evaluation = conclude(
                    problem, candidate, config, runner, outcome, status=status, environment=self.environment
                )
                concluded.append((evaluation, doubt))
            return concluded
        finally:
            _close(held)

    def _assign_compiled(self, compiler: _Compiler, problem: Problem, config: EvalConfig, source: str) -> None:
        """As ``_assign``, with the files that were compiled in an earlier evaluation, where there are any."""
        archive = self._compile_cache.open(compiler.key)
        compiler.restored = archive is not None
        try:
            _assign(compiler.runner, problem, config, source, archive)
        finally:
            if archive is not None:
                os.close(archive)

    def _keep_compiled(self, compiler: _Compiler, outcome: dict[str, Any], *, alone: bool) -> None:
        """Keep the compiled files of a candidate that passed, and forget restored ones that it did not pass with.

        Its ``outcome`` gets a note of that. Not ``alone``: without a verdict it may have been stopped because of
        another one.
        """
        if outcome["verdict"] == Verdict.PASSED:
            archive, is_new = compiler.runner.process.archive, False
            try:
                is_new = bool(archive) and self._compile_cache.keep(compiler.key, Path(archive))
            except OSError as error:
                _log.warning("files that were compiled at run time cannot be kept: %s", error)
            if compiler.restored or is_new:
                outcome["details"]["compile_cache"] = "restored" if compiler.restored else "kept"
        elif compiler.restored and (alone or outcome["verdict"] is not None):
            self._compile_cache.forget(compiler.key)
            outcome["details"]["compile_cache"] = "restored"
            outcome["notes"].append(
                "it had the files that it compiled in an evaluation before, which passed; the next one compiles anew"
            )

    def _take_kept(self, problem: Problem, config: EvalConfig, count: int) -> _KeptBaseline | None:
        """Return the kept baseline, if it fits an evaluation of so many candidates; otherwise end it."""
        kept = self._kept
        if kept is not None and not kept.serves(problem, config, self._made_for(config), count):
            self._end_kept()
        kept, self._kept = self._kept, None
        return kept

    def _made_for(self, config: EvalConfig) -> _MadeFor:
        return config.limits, self._judge, self._forkserver, self._builder

    def _take_team(
        self, config: EvalConfig, count: int, cancelled: Callable[[], bool]
    ) -> tuple[_Team, list[RunnerHandle]]:
        """Return runners that are ready for an evaluation of ``count`` candidates, and the remaining candidates'
        runners.

        They are the waiting ones, or new ones where those cannot be used. Raises ``EvaluationCancelled``, and
        ``InfrastructureFault`` where there are none to be had.
        """
        waiting = self._waiting
        if waiting is not None:
            ready = waiting.made_for == self._made_for(config) and waiting.is_ready(cancelled)
            self._waiting = None
            if not ready:
                waiting.close()
                waiting = None
        team: _Team | None = None
        try:
            if waiting is None:
                team = self._begin_team(config, count)
            else:
                team = self._begin_team(config, count, waiting.candidates[:count], waiting.baseline)
            team.await_warm(cancelled)
        except BaseException:
            for each in (team, waiting):
                if each is not None:
                    each.close()
            raise
        return team, [] if waiting is None else waiting.candidates[count:]

    def _begin_next_team(
        self, config: EvalConfig, count: int, spare: Sequence[RunnerHandle], baseline: RunnerHandle | None
    ) -> _Team | None:
        """Begin the runners of the next evaluation: ``count`` for candidates besides the ``spare`` ones, if possible.

        This evaluation works without them. ``baseline``: one that exists already. New runners are still being forked.
        """
        there = [*spare, *([] if baseline is None else [baseline])]
        if not self._prepares_next:
            _close(there)
            return None
        try:
            return self._begin_team(config, len(spare) + count, spare, baseline)
        except (InfrastructureFault, OSError, RuntimeError) as error:
            _log.warning("the processes of the next evaluation cannot be started ahead: %s", error)
            _close(there)
            return None

    def _admit(self) -> None:
        """Let the runners of the next evaluation use the device."""
        if self._waiting is not None:
            self._try_next_team(self._waiting.begin_warm_up)

    def _settle(self, cancelled: Callable[[], bool]) -> bool:
        """Wait until the runners of the next evaluation are idle or gone; return whether they are there.

        Raises ``EvaluationCancelled``.
        """
        waiting = self._waiting
        if waiting is not None:
            self._try_next_team(lambda: waiting.await_warm(cancelled))
        return self._waiting is not None

    def _try_next_team(self, step: Callable[[], None]) -> None:
        """Run a step of the next evaluation's runners. A failure ends them alone: this one works without them."""
        try:
            step()
        except (InfrastructureFault, OSError, RuntimeError) as error:
            _log.warning("the processes of the next evaluation are started again: %s", error)
            self._end_waiting()

    def _begin_team(
        self,
        config: EvalConfig,
        count: int,
        candidates: Sequence[RunnerHandle] = (),
        baseline: RunnerHandle | None = None,
    ) -> _Team:
        """Begin ``count`` runners for candidates and one for their baseline, counting those that exist already.

        New runners are still being forked.
        """
        started: list[RunnerHandle] = []
        try:
            started.extend(self._begin_runner(config) for _ in range(count - len(candidates)))
            new = list(started)
            if baseline is None:
                baseline = self._begin_runner(config, watched=False)
                started.append(baseline)
        except BaseException:
            _close(started)
            raise
        return _Team([*candidates, *new], baseline, self._made_for(config))

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
            self._end_waiting()  # the tool needs more memory of the device than an evaluation does
            self._end_kept()
            self._ensure_alive(judge=False)
            forkserver, surroundings = self._forkserver, self._surroundings
            assert forkserver is not None
            assert surroundings is not None
            builder = self._start_builder(forkserver.versions, surroundings, line_information=True)
            session, build_end = builder.open_session(config.limits.build_s)
            try:
                workplace = Workplace(
                    confinement=surroundings.runner_confinement(config.limits, with_device=True),
                    environment=surroundings.environment,
                    inner=surroundings.runner_environment(with_device=True),
                    scratch=surroundings.scratch_dir,
                    build_end=build_end,
                    builds=lambda: builder.report(session),
                )
                return diagnose(problem, candidate, config, tool, workplace, program=program, cancelled=cancelled)
            finally:
                build_end.close()
                builder.close()

    def _ensure_alive(self, *, judge: bool = True) -> None:
        """Start the processes that are not running: at first, and after one of ours died.

        The judge belongs to evaluations: a build that runs beside one leaves it alone.
        """
        with self._starting:
            surroundings = self._surroundings
            if surroundings is None:
                raise InfrastructureFault("the engine is not started")
            starting_judge = judge and self._device is not None and (self._judge is None or not self._judge.alive)
            if starting_judge:
                # They were for the judge before, and are not to be on the device when it is opened.
                self._end_waiting()
                self._end_kept()
                if self._judge is not None:
                    self._judge.close()
                kind, folder = "cpu" if self._device == "cpu" else "cuda", self._cache_dir / "ceilings"
                self._judge = JudgeProcess(kind, surroundings.torch_environment, folder)
                self._judge.processors = surroundings.judge_processors
                self._judge.launch()
            if self._forkserver is None or not self._forkserver.alive:
                if self._forkserver is not None:
                    self._forkserver.close()
                self._forkserver = ForkServer(surroundings.torch_environment)
                self._forkserver.processors = surroundings.other_processors
                self._forkserver.start()
                self._try_sandbox(self._forkserver, surroundings)
            if self._builder is None or not self._builder.alive:
                if self._builder is not None:
                    self._builder.close()
                self._builder = self._start_builder(self._forkserver.versions, surroundings)
            if starting_judge:
                assert self._judge is not None
                self._judge.await_ready()
            described = self._judge.description if self._judge is not None else dict(self._forkserver.versions)
            self._description = {
                **described,
                "device": "none" if self._device is None else self._device.partition(":")[0],
                **compiler_versions(),
            }

    def _try_sandbox(self, forkserver: ForkServer, surroundings: ProcessEnvironment) -> None:
        confinement = surroundings.runner_confinement(Limits())
        refused = forkserver.try_on({"confinement": confinement.to_json(), "scratch": str(surroundings.scratch_dir)})
        self._layers = tuple(
            SandboxLayer(str(layer), layer not in refused, layer in OPTIONAL, MEANING[layer]) for layer in Layer
        )
        needed = [layer for layer in self._layers if not layer.there and not layer.optional]
        if self._require_sandbox and needed:
            forkserver.close()  # or the next evaluation would take it as it is
            raise SandboxIncomplete(
                "a complete sandbox is required, and the kernel refuses: "
                + "; ".join(f"{layer.name} ({layer.meaning})" for layer in needed)
            )

    def _take_discoverer(self, config: EvalConfig) -> RunnerHandle:
        """Return a runner without a device, to import a module in: the one that waits, or a new one."""
        with self._starting:
            waiting, self._discoverer = self._discoverer, None
        if waiting is not None:
            runner, limits = waiting
            ours = limits == config.limits and runner.forkserver is self._forkserver and runner.builder is self._builder
            with contextlib.suppress(InfrastructureFault):
                runner.await_forked()
                if ours and runner.alive:
                    return runner
            runner.close()
        return self._begin_runner(config, discover=True)

    def _prepare_discoverer(self, config: EvalConfig) -> None:
        """Fork the runner of the next build now, because that takes longer than the rest of a build from the cache.

        Builds work without it.
        """
        with self._starting:
            if not self._prepares_next or self._discoverer is not None:
                return
            try:
                runner = self._begin_runner(config, discover=True)
                self._discoverer = runner, config.limits
                runner.begin_warm_up()
            except (InfrastructureFault, OSError, RuntimeError) as error:
                _log.warning("the process of the next build cannot be started ahead: %s", error)
                self._end_discoverer()

    def _start_builder(
        self, versions: Mapping[str, str | None], surroundings: ProcessEnvironment, *, line_information: bool = False
    ) -> BuilderProcess:
        architectures = cuda_architectures()
        builder = BuilderProcess(
            cache_dir=self._cache_dir,
            cache_bytes=self._cache_bytes,
            scratch_dir=surroundings.scratch_dir,
            toolchain={
                **versions,
                "python": sys.version,
                **compiler_versions(),
                "cuda_architectures": architectures,
                **({"line_information": True} if line_information else {}),
            },
            environment=surroundings.environment | {"TORCH_CUDA_ARCH_LIST": architectures},
            confinement=surroundings.compiler_confinement(),
            slots=self._build_slots,
            prepared=find_prepared(surroundings.environment),
            artifact_store=self._artifact_store,
        )
        builder.processors = surroundings.other_processors
        builder.start()
        return builder

    def _begin_runner(self, config: EvalConfig, *, discover: bool = False, watched: bool = True) -> RunnerHandle:
        """Return a runner that is being forked, and then waits for its task.

        ``discover``: without a device. ``watched``: it is for a candidate.
        """
        # The present ones: a build that runs beside may replace them meanwhile.
        builder, forkserver, surroundings = self._builder, self._forkserver, self._surroundings
        if builder is None or forkserver is None or surroundings is None:
            raise InfrastructureFault("the engine was closed")
        spec = {
            "confinement": surroundings.runner_confinement(config.limits, with_device=not discover).to_json(),
            "scratch": str(surroundings.scratch_dir),
            "discover": discover,
            "watched": watched,
            "cuda": config.device_kind == "cuda" and not discover,
            "environment": surroundings.runner_environment(with_device=not discover),
            "keeps_compiled": watched and not discover,
        }
        return begin_runner(forkserver, builder, spec, config.limits)


_MadeFor = tuple[Limits, JudgeProcess | None, ForkServer | None, BuilderProcess | None]
"""The limits and the engine's processes that runners were made for."""


_First = tuple[Evaluation, str]
"""An evaluation, and the reason for a second one: empty where nothing is in doubt."""


@dataclass
class _Compiler:
    """A candidate's runner, which may compile in its first calls. ``restored``: it was given earlier files."""

    runner: RunnerHandle
    key: str
    restored: bool = False


@dataclass
class _Team:
    """New runners, for one evaluation: of candidates, and of their baseline."""

    candidates: list[RunnerHandle]
    baseline: RunnerHandle
    made_for: _MadeFor

    @property
    def runners(self) -> list[RunnerHandle]:
        return [*self.candidates, self.baseline]

    def await_forked(self) -> None:
        for runner in self.runners:
            runner.await_forked()

    def begin_warm_up(self) -> None:
        for runner in self.runners:
            runner.begin_warm_up()

    def await_warm(self, cancelled: Callable[[], bool] = never_cancelled) -> None:
        self.await_forked()
        self.begin_warm_up()
        for runner in self.runners:
            runner.await_warm(cancelled)

    def is_ready(self, cancelled: Callable[[], bool]) -> bool:
        """Whether all can take a task; waits until they can. Raises ``EvaluationCancelled``."""
        try:
            self.await_warm(cancelled)
            return all(runner.alive for runner in self.runners)
        except InfrastructureFault:
            return False

    def close(self) -> None:
        """End all of them. Idempotent."""
        _close(self.runners)


@dataclass(frozen=True)
class _KeptBaseline:
    """The runner of a baseline that has served so many ``evaluations``, and can serve the next one of the same kind."""

    runner: RunnerHandle
    problem: Problem
    config: EvalConfig
    made_for: _MadeFor
    evaluations: int

    def serves(self, problem: Problem, config: EvalConfig, made_for: _MadeFor, count: int) -> bool:
        """Whether it is alive, and suits an evaluation of so many candidates."""
        if (problem, config, made_for) != (self.problem, self.config, self.made_for):
            return False
        if self.evaluations + count > _MOST_EVALUATIONS:
            return False
        try:
            return self.runner.alive
        except InfrastructureFault:
            return False


def _raise_descriptor_limit() -> None:
    """Raise the limit of descriptors of this process, and of those that it starts, to the allowed maximum.

    Linux counts the descriptors on their way through sockets for all processes of a user together. A process with a
    lower limit than that count cannot send one. So candidates, who have a limit of their own, could keep the judge from
    reaching its runners.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _in_short(evaluation: Evaluation) -> dict[str, Any]:
    """The part of an evaluation that the record of its successor keeps."""
    return {
        "verdict": str(evaluation.verdict),
        "message": evaluation.message,
        "gradients": str(evaluation.gradients),
        "speedup": evaluation.speedup,
        "speedup_training": evaluation.speedup_training,
        "notes": list(evaluation.notes),
    }


def _require_gone(runner: RunnerHandle) -> None:
    """Raise ``InfrastructureFault`` if a process is left: no measurement beside it would be worth anything."""
    if runner.process.left:
        raise InfrastructureFault("something of a candidate or a baseline survived its end")


def _close(runners: Sequence[RunnerHandle]) -> None:
    for runner in runners:
        with contextlib.suppress(InfrastructureFault):
            runner.await_forked()  # killed before, it would leave its control group behind
    for runner in runners:
        runner.begin_kill()  # a context takes a while to go
    for runner in runners:
        runner.close()


def _doubt(put_back: Sequence[str], *, clocks_disagree: bool, device_was_busy: bool) -> str:
    """Return the reason for a second evaluation, in words. ``put_back``: the tracks with corrected time."""
    if device_was_busy:
        return "the device was busy while every process was stopped"
    if clocks_disagree:
        return "inner and outer clock disagreed"
    return f"time was put back: {' and '.join(put_back)}" if put_back else ""


def _stands_among_others(outcome: Mapping[str, Any]) -> bool:
    """Whether the outcome of one candidate among several is final: it passed, and every comparison was made."""
    return bool(outcome["verdict"] == Verdict.PASSED and outcome["gradients"] != Gradients.PARTIAL)


def _contact(runner: RunnerHandle) -> Contact:
    return Contact(runner.control.fileno(), {"pid": runner.process.pid, "group": runner.process.group})


def _assign(
    runner: RunnerHandle, problem: Problem, config: EvalConfig, source: str | None, compiled: int | None = None
) -> None:
    """Have a runner import the candidate's ``source``, or the reference where there is none.

    ``compiled``: a descriptor of the archive that its compilers left in an earlier evaluation.
    """
    files = {"model.py": problem.sized_source(config.size)}
    if source is None:
        runner.assign(files, "model", "Model")
    else:
        runner.assign(files | {"candidate.py": source}, "candidate", "ModelNew", compiled)


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
