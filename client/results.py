"""Results of many candidates in a file: as lines of JSON, as CSV, or as KernelBench writes them."""

from __future__ import annotations

import csv
import json
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from client.inputs import KnownProblems
from client.outcomes import BadUsage
from client.records import SubmissionRecord
from evaluator.evaluation import Status, Verdict
from evaluator.summary import Graded

__all__ = ["ResultFile", "eval_results", "graded_of", "pid_of", "runtime_stats"]

Result = dict[str, Any]

_COLUMNS: Final = (
    "key", "digest", "sample", "problem", "status", "verdict", "gradients", "speedup", "speedup_low", "speedup_high",
    "speedup_training", "latency_ms", "baseline_ms", "device", "size", "precision", "message", "id",
)  # fmt: skip
_NUMBERS: Final = ("speedup", "speedup_low", "speedup_high", "speedup_training", "latency_ms", "baseline_ms")
_FORMULA_STARTS: Final = ("=", "+", "-", "@", "\t", "\r")
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
"""Where KernelBench's metadata tell of it."""


class ResultFile:
    """Results by key, in a file that only grows; the last one of a key counts. A context manager.

    Raises ``BadUsage`` for a file that is none, or cannot be written.
    """

    def __init__(self, path: Path) -> None:
        if path.suffix not in (".jsonl", ".csv"):
            raise BadUsage(f"--out must end in .jsonl or .csv, not {path.name!r}")
        self._path = path
        self._csv = path.suffix == ".csv"
        try:
            self.results: dict[str, Result] = {result["key"]: result for result in self._read()}
            self._stream = path.open("a", encoding="utf-8", newline="")
        except OSError as error:
            raise BadUsage(f"cannot write {path}: {error.strerror}") from error
        if self._csv and not self._stream.tell():
            csv.writer(self._stream).writerow(_COLUMNS)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stream.close()

    def has(self, key: str, digest: str) -> bool:
        """Whether this candidate was graded already."""
        result = self.results.get(key)
        return result is not None and result["digest"] == digest and result["status"] == Status.DONE

    def add(self, result: Result) -> None:
        """Write one result, so that it is there whatever happens next."""
        self.results[result["key"]] = result
        if self._csv:
            csv.writer(self._stream).writerow(_row(result))
        else:
            self._stream.write(json.dumps(result) + "\n")
        self._stream.flush()

    def _read(self) -> Iterable[Result]:
        if not self._path.exists():
            return
        with self._path.open("r+", encoding="utf-8", newline="") as stream:
            text = stream.read()
            if not text.endswith("\n"):
                # Whoever was interrupted in the middle of a line has not written it.
                whole = text[: text.rfind("\n") + 1]
                stream.truncate(len(whole.encode()))
                text = whole
        try:
            yield from _csv_results(text) if self._csv else map(json.loads, text.splitlines())
        except (ValueError, KeyError) as error:
            raise BadUsage(f"{self._path} does not hold results of this command: {error}") from error


def graded_of(result: Result) -> Graded:
    """``result`` as a summary takes it."""
    verdict = Verdict(result["verdict"]) if result["status"] == Status.DONE else None
    return Graded(result["problem"], verdict, result["speedup"], result["key"])


def runtime_stats(samples_ms: Sequence[float], record: SubmissionRecord) -> dict[str, Any]:
    """What KernelBench keeps of the timed calls, in milliseconds."""
    return {
        "mean": statistics.fmean(samples_ms),
        "std": statistics.pstdev(samples_ms),
        "min": min(samples_ms),
        "max": max(samples_ms),
        "num_trials": len(samples_ms),
        **_where(record),
    }


def eval_results(results: Iterable[Result], known: KnownProblems) -> dict[str, list[dict[str, Any]]]:
    """What KernelBench's own ``eval_results.json`` would say of these results; what was not graded is left out."""
    by_problem: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for result in results:
        if result["status"] == Status.DONE:
            _, number = pid_of(result["problem"], known)
            by_problem[str(number)].append(_kernelbench(result))
    return {
        number: sorted(by_problem[number], key=lambda entry: int(entry["sample_id"]))
        for number in sorted(by_problem, key=int)
    }


def pid_of(problem: str, known: KnownProblems) -> tuple[int, int]:
    """Level and number of ``problem`` in KernelBench. Raises ``BadUsage`` where it is none of its problems."""
    record = known.by_id.get(problem)
    identity = None if record is None else record.get("kernelbench")
    if not identity:
        raise BadUsage(f"--eval-results is for problems of KernelBench, and {problem} is none")
    return identity["level"], identity["problem_id"]


def _kernelbench(result: Result) -> dict[str, Any]:
    verdict = Verdict(result["verdict"])
    graded = graded_of(result)
    metadata = _where(result)
    if verdict in _ERRORS:
        metadata |= {_ERRORS[verdict]: result["message"], f"{_ERRORS[verdict]}_name": str(verdict)}
    stats = result.get("runtime_stats") or {}
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
    environment = record["environment"]
    return {"hardware": str(environment.get("device_name", record["device"])), "device": record["device"]}


def _row(result: Result) -> list[Any]:
    interval, latency = result["speedup_interval"] or {}, result["latency_ms"] or {}
    values = {
        **result,
        "speedup_low": interval.get("low"),
        "speedup_high": interval.get("high"),
        "latency_ms": latency.get("candidate"),
        "baseline_ms": latency.get("baseline"),
    }
    return [_inert(values[name]) for name in _COLUMNS]


def _inert(value: Any) -> Any:
    """A text that a spreadsheet would run as a formula is quoted."""
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA_STARTS) else value


def _csv_results(text: str) -> Iterable[Result]:
    for row in csv.DictReader(text.splitlines(keepends=True)):
        result: Result = {**row, "key": row["key"].removeprefix("'"), "verdict": row["verdict"] or None}
        for name in _NUMBERS:
            result[name] = float(row[name]) if row[name] else None
        yield result
