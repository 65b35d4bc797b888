"""The build stage: a candidate's module is imported without a device, and its extensions are built. Torch-free."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from evaluator.builder.resources import KernelResources
from evaluator.errors import InfrastructureFault
from evaluator.evaluation import Evaluation, Verdict
from evaluator.processes.runner_handle import Discovery
from evaluator.processes.runner_pool import RunnerPool
from evaluator.processes.team import require_gone
from evaluator.processes.trusted_processes import TrustedProcesses
from evaluator.progress import Callbacks, Progress
from evaluator.results.assemble import build_details, conclude_early, failed_build, kernel_resources, verdict_of_build
from evaluator.sandbox.priority import was_starved
from evaluator.stages.source_check import rejected_by_rules
from evaluator.task import EvaluationTask

__all__ = ["BuildReport", "build_candidate"]


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


def build_candidate(
    processes: TrustedProcesses, pool: RunnerPool, task: EvaluationTask, callbacks: Callbacks
) -> BuildReport:
    """As ``Engine.build``, with the processes of an engine."""
    begin, config, progress = time.monotonic(), task.config, callbacks.progress
    rejected = rejected_by_rules(task, stage="building", environment=dict(processes.description))
    if rejected is not None:
        return BuildReport(rejected, time.monotonic() - begin, extensions=0, cached=0, log="")
    processes.ensure_alive(before_judge=None)
    progress(Progress("building", "looking for extensions"))
    runner = pool.take_discoverer(config)
    try:
        runner.await_forked()
        runner.assign(task.problem, config, task.candidate.source)
        discovery = runner.await_discovery(
            config.limits.load_s,
            lambda passed_s: progress(Progress("building", f"{passed_s:.0f} s")),
            callbacks.cancelled,
        )
        if discovery is Discovery.TIMED_OUT and was_starved(runner.process.pid, time.monotonic() - begin):
            raise InfrastructureFault("importing the module had hardly a processor: the machine is busy otherwise")
        runner.learn_builds()
        builds, log = runner.builds, runner.log(config.limits.log_bytes)
    finally:
        runner.close()
        require_gone(runner)
    pool.prepare_discoverer(config)
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
            task,
            *ending,
            log=log,
            stage_s={"building": seconds},
            environment=dict(processes.description),
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
