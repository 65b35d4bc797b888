"""The end of an evaluation: an ``Evaluation``, from the reports of judge, builder and kernel. Torch-free."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from evaluator.builder.resources import KernelResources, spill_notes
from evaluator.errors import ToolchainMissing
from evaluator.evaluation import Evaluation, SpeedupStatus, Verdict
from evaluator.processes.runner_handle import RunnerHandle
from evaluator.results.explain import device_fault, explain_exit, explain_failure, hints_for
from evaluator.sandbox.layers import OPTIONAL
from evaluator.source_flags import advise
from evaluator.task import EvaluationTask

__all__ = [
    "build_details",
    "conclude",
    "conclude_early",
    "failed_build",
    "kernel_resources",
    "verdict_of_build",
]

_RAISED = (Verdict.LOAD_ERROR, Verdict.CONSTRUCT_ERROR, Verdict.RUNTIME_ERROR)
"""Verdicts of a candidate that raised an exception."""


def conclude(
    task: EvaluationTask,
    runner: RunnerHandle,
    outcome: Mapping[str, Any],
    *,
    status: int | None,
    environment: Mapping[str, Any],
) -> Evaluation:
    """Make the evaluation from the judge's ``outcome`` (as plain data), the builds and the runner's end.

    ``status`` is the runner's wait status, where it has ended by itself. Raises ``ToolchainMissing`` where the
    candidate failed because this machine lacks a tool.
    """
    failed = failed_build(runner.builds)
    message, notes = outcome["message"], list(outcome["notes"])
    log = runner.log(task.config.limits.log_bytes)
    fault: str | None = None
    if outcome["verdict"] is None:
        # An uncaught C++ exception ends the process, and is reported on its standard error alone.
        fault = device_fault(log)
        verdict, message = explain_exit(status, outcome["stage"])
    else:
        verdict = Verdict(outcome["verdict"])
        if verdict in _RAISED:
            kernels = sorted({name for build in runner.builds for name in build.get("kernels", ())})
            fault = device_fault(message)
            message = explain_failure(message, kernels)
    if failed is not None:
        lacks = failed.get("toolchain_missing")
        if verdict not in _RAISED or (lacks and outcome["stage"] == "sampling"):
            # A candidate that was measured gets no second try because of a build that this machine cannot make.
            notes.append(f"extension {failed['name']} did not build, and the candidate went on without it")
        elif lacks:
            raise ToolchainMissing(str(failed["error"]))
        else:
            verdict, message = verdict_of_build(failed)
    resources = kernel_resources(runner.builds)
    notes.extend(spill_notes(resources))
    details = {**outcome["details"], **_rules_of(task)}
    if resources:
        details["kernels"] = [asdict(kernel) for kernel in resources]
    if fault is not None and verdict in _RAISED and task.config.device_kind == "cuda":
        details["device_fault"] = fault
    built = build_details(runner.builds)
    if built:
        details["builds"] = built
    missing = [layer for layer in runner.process.refused if layer not in OPTIONAL]
    if missing:
        notes.append(f"the kernel refused these layers of isolation: {', '.join(missing)}")
    known = conclude_early(
        task,
        verdict,
        message,
        log=log,
        stage_s=outcome["stage_s"],
        environment=environment,
    ).to_dict()
    found = {name: value for name, value in outcome.items() if name != "stage"}
    evaluation = Evaluation.from_dict(
        {**known, **found, "verdict": verdict, "message": message, "notes": notes, "details": details}
    )
    if details.get("parameters", {}).get("fixed"):
        return evaluation.without_speedup(SpeedupStatus.WEIGHTS_FIXED)
    return evaluation


def conclude_early(
    task: EvaluationTask,
    verdict: Verdict,
    message: str,
    *,
    log: str,
    stage_s: Mapping[str, float],
    environment: Mapping[str, Any],
    details: Mapping[str, Any] | None = None,
) -> Evaluation:
    """Make the evaluation of a candidate that ended before the judge was needed."""
    problem, config = task.problem, task.config
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
        flags=advise(
            task.candidate.source, of_precision=problem.least_precision(config.precision), tf32=problem.tf32_in(config)
        ),
        log=log,
        details={**(details or {}), **_rules_of(task)},
        environment=environment,
        stage_s=stage_s,
    )


def _rules_of(task: EvaluationTask) -> dict[str, Any]:
    """Return the rules that applied, as a part of ``Evaluation.details``; empty without any."""
    rules = task.rules.to_dict()
    return {"rules": rules} if rules else {}


def failed_build(builds: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Return the first of the builder's reports that is of a failure."""
    return next((build for build in builds if "error" in build), None)


def kernel_resources(builds: Sequence[Mapping[str, Any]]) -> tuple[KernelResources, ...]:
    """Return the resources of the kernels of all extensions."""
    return KernelResources.parse_all([kernel for build in builds for kernel in build.get("resources", ())])


def build_details(builds: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return a record's fields of each finished build: its recipe, and the reasons why no faster one built it."""
    names = ("name", "recipe", "seconds", "cached", "refusals")
    built = [build for build in builds if "error" not in build]
    return [{name: build[name] for name in names if name != "refusals" or build[name]} for build in built]


def verdict_of_build(build: Mapping[str, Any]) -> tuple[Verdict, str]:
    """Return the verdict of a failed build, and its message."""
    verdict = Verdict.TIMEOUT if build.get("timed_out") else Verdict.COMPILE_ERROR
    return verdict, str(build["error"])
