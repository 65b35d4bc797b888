"""Results in the format of KernelBench's own evaluation, so that its analysis runs on them."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from kerneljudge.cli.output import BadUsage
from kerneljudge.grading.inputs import KnownProblems
from kerneljudge.grading.results import Result, graded_of
from kerneljudge.records import SubmissionRecord
from kerneljudge.terms.outcomes import SpeedupStatus, Status, Verdict

__all__ = ["eval_results", "pid_of", "runtime_stats"]

_ERRORS: Final = {
    Verdict.INVALID_SOURCE: "compilation_error",
    Verdict.LOAD_ERROR: "compilation_error",
    Verdict.COMPILE_ERROR: "compilation_error",
    Verdict.CONSTRUCT_ERROR: "runtime_error",
    Verdict.RUNTIME_ERROR: "runtime_error",
    Verdict.TIMEOUT: "runtime_error",
    Verdict.OUT_OF_MEMORY: "runtime_error",
    Verdict.WRONG_SHAPE: "correctness_issue",
    Verdict.WRONG_DTYPE: "correctness_issue",
    Verdict.WRONG_OUTPUT: "correctness_issue",
    Verdict.WRONG_GRADIENT: "correctness_issue",
    Verdict.REJECTED: "other_error",
}
"""The field of KernelBench's metadata for each verdict."""
_UNMEASURED: Final = (SpeedupStatus.UNSETTLED, SpeedupStatus.NOT_VETTED, SpeedupStatus.WEIGHTS_FIXED)


def runtime_stats(samples_ms: Sequence[float], record: SubmissionRecord) -> dict[str, Any]:
    """Return KernelBench's statistics of the timed calls, in milliseconds."""
    return {
        "mean": statistics.fmean(samples_ms),
        "std": statistics.pstdev(samples_ms),
        "min": min(samples_ms),
        "max": max(samples_ms),
        "num_trials": len(samples_ms),
        **_where(record),
    }


def eval_results(results: Iterable[Result], known: KnownProblems) -> dict[str, list[dict[str, Any]]]:
    """Return the content of KernelBench's ``eval_results.json`` for these results. Ungraded ones are left out."""
    by_problem: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for result in results:
        if result["status"] == Status.DONE:
            _, number = pid_of(result["problem"], known)
            by_problem[str(number)].append(_entry(result))
    return {
        number: sorted(by_problem[number], key=lambda entry: int(entry["sample_id"]))
        for number in sorted(by_problem, key=int)
    }


def pid_of(problem: str, known: KnownProblems) -> tuple[int, int]:
    """Return level and number of ``problem`` in KernelBench.

    Raises ``BadUsage`` where it is not one of its problems.
    """
    number = known.number_of(problem)
    if number is None:
        raise BadUsage(f"--eval-results is for problems of KernelBench, and {problem} is none")
    return number


def _entry(result: Result) -> dict[str, Any]:
    verdict = Verdict(result["verdict"])
    graded = graded_of(result)
    metadata = _where(result)
    if verdict in _ERRORS:
        metadata |= {_ERRORS[verdict]: result["message"], f"{_ERRORS[verdict]}_name": str(verdict)}
    # Without a speedup, there is no latency to compare either.
    stats = {} if result.get("speedup_status") in _UNMEASURED else result.get("runtime_stats") or {}
    latency = result["latency_ms"]
    runtime = stats.get("mean") if stats else None if latency is None else latency["candidate"]
    return {
        "sample_id": result["sample"],
        "compiled": graded.compiled,
        "correctness": graded.correct,
        "metadata": metadata,
        "runtime": -1.0 if runtime is None else runtime,
        "runtime_stats": stats,
    }


def _where(record: Mapping[str, Any]) -> dict[str, Any]:
    environment = record["environment"] or {}
    return {"hardware": str(environment.get("device_name", record["device"])), "device": record["device"]}
