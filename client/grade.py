"""Grading many candidates, through a service or on this machine."""

from __future__ import annotations

import json
import secrets
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from client import local, render
from client.http import Client
from client.inputs import Fields, KnownProblems, Work, read_work
from client.outcomes import BadUsage, ExitStatus, emit, say, stderr
from client.progress import ProgressLine
from client.records import SubmissionRecord, blank_record
from client.results import ResultFile, eval_results, graded_of, pid_of, runtime_stats
from client.sources import Given, known_problems
from evaluator.evaluation import Status, Verdict
from evaluator.problem import Problem
from evaluator.summary import ProblemFacts, Summary, summarise

__all__ = ["Fields", "Wishes", "grade_all"]

_POLL_S: Final = 1.0
_REFUSED: Final = "refused"


@dataclass(frozen=True)
class Wishes:
    """How everything is to be graded; ``None`` leaves it to the service, or to what is usual."""

    device: str | None = None
    size: str | None = None
    precision: str | None = None
    require_gradients: bool | None = None
    baseline: str = "eager"
    author: str | None = None


@dataclass(frozen=True)
class _Graded:
    """What came of one candidate. ``samples_ms``: its timed calls, where they were asked for."""

    work: Work
    record: SubmissionRecord
    samples_ms: Sequence[float] = ()
    refused: bool = False


def grade_all(
    given: Path,
    out: Path,
    fields: Fields,
    wishes: Wishes,
    *,
    problem: str | None,
    eval_results: Path | None,
    service: Client | None,
    problems_dir: Path | None,
    require_sandbox: bool,
    as_json: bool,
) -> ExitStatus:
    """Grade what ``given`` holds and ``out`` does not, and say what everything in it amounts to.

    Without a ``service``, on this machine. Raises ``BadUsage``, ``UnusableFile``, and what the client and the engine
    raise.
    """
    problems = {} if service is not None else known_problems(problems_dir)
    records = service.problems() if service is not None else [local.problem_record(task) for task in problems.values()]
    known = KnownProblems(records)
    everything = read_work(given, fields, problem, known)
    if eval_results is not None:
        _check_eval_results(everything, out, known)
    refused = 0
    with ResultFile(out) as file:
        todo = [work for work in everything if not file.has(work.key, work.digest)]
        if len(todo) < len(everything):
            say(f"{len(everything) - len(todo)} of {len(everything)} are in {out} already")
        say(f"grading {len(todo)} at {service.url}" if service is not None else f"grading {len(todo)} on this machine")
        found = (
            _by_service(service, todo, wishes, with_samples=eval_results is not None)
            if service is not None
            else _here(problems, todo, wishes, require_sandbox=require_sandbox)
        )
        with ProgressLine(stderr()) as line:
            meter = _Meter(len(todo), line)
            for graded in found:
                refused += graded.refused
                file.add(_result(graded))
                meter.count(graded)
        keys = {work.key for work in everything}
        results = [result for key, result in file.results.items() if key in keys]
    if eval_results is not None:
        _write_eval_results(eval_results, results, known)
    facts = {
        record["id"]: ProblemFacts((record.get("kernelbench") or {}).get("level"), tuple(record["tags"]))
        for record in records
    }
    summary = summarise(map(graded_of, results), facts)
    if as_json:
        emit(summary.to_dict())
    else:
        render.write(render.summary(summary))
    return _status(summary, refused)


def _by_service(service: Client, todo: Sequence[Work], wishes: Wishes, *, with_samples: bool) -> Iterator[_Graded]:
    """Through one batch; what is over comes as soon as it is."""
    if not todo:
        return
    header = {"batch": {"defaults": {name: value for name, value in asdict(wishes).items() if value is not None}}}
    lines = (json.dumps(each).encode() + b"\n" for each in (header, *(_line(work) for work in todo)))
    # In one piece, so that it can be sent again.
    batch = service.submit_batch(b"".join(lines), idempotency_key=secrets.token_hex(16))
    try:
        # Line 1 is the header.
        by_line = dict(enumerate(todo, start=2))
        for error in batch["errors"]:
            work = by_line.pop(error["line"])
            yield _Graded(work, _not_graded(work, f"{_REFUSED}: {error['message']}", wishes), refused=True)
        if batch["errors_total"] > len(batch["errors"]):
            say(f"{batch['errors_total'] - len(batch['errors'])} more lines were refused")
        cursor = 0
        while True:
            over = service.batch(batch["id"])["finished"] is not None
            for result in service.batch_results(batch["id"], cursor):
                cursor = result["cursor"]
                record = result["submission"]
                timed = with_samples and record["verdict"] == Verdict.PASSED and record["latency_ms"] is not None
                series = service.samples(str(record["id"])).get("inference") if timed else None
                yield _Graded(by_line[result["line"]], record, series["candidate_device_ms"] if series else ())
            if over:
                return
            time.sleep(_POLL_S)
    except KeyboardInterrupt:
        say(f"it goes on being graded: {service.url}{batch['links']['self']}; the same command fetches what is done")
        raise


def _line(work: Work) -> dict[str, Any]:
    # A name of at most 200 characters is what a service takes.
    return {**work.submission, "label": work.key[-200:]}


def _here(
    problems: Mapping[str, Problem], todo: Sequence[Work], wishes: Wishes, *, require_sandbox: bool
) -> Iterator[_Graded]:
    """One after another, on one engine; the same source for the same problem once."""
    device = wishes.device or local.default_device()
    configs = {
        work.problem: local.configure(
            problems[work.problem], device, wishes.size, wishes.precision, wishes.require_gradients, wishes.baseline
        )
        for work in todo
    }
    seen: dict[str, _Graded] = {}
    with local.Bench(device, require_sandbox=require_sandbox) as bench:
        for work in todo:
            if work.digest not in seen:
                task = problems[work.problem]
                given = Given(work.text, work.is_response, work.key)
                outcome = bench.grade(task, given.parse(), configs[work.problem])
                outcome.record["author"] = wishes.author
                seen[work.digest] = _Graded(work, outcome.record, outcome.samples_ms)
            known = seen[work.digest]
            yield replace(known, work=work)


def _not_graded(work: Work, message: str, wishes: Wishes) -> SubmissionRecord:
    known = {"status": str(Status.FAILED), "message": message, "device": wishes.device, "size": wishes.size}
    return blank_record(work.problem, **known)


def _result(graded: _Graded) -> dict[str, Any]:
    work = graded.work
    result = {"key": work.key, "digest": work.digest, "sample": work.sample, **graded.record}
    if graded.samples_ms:
        result["runtime_stats"] = runtime_stats(graded.samples_ms, graded.record)
    return result


def _check_eval_results(everything: Sequence[Work], out: Path, known: KnownProblems) -> None:
    levels = {pid_of(work.problem, known)[0] for work in everything}
    if len(levels) > 1:
        raise BadUsage("--eval-results has one level, as KernelBench's file says none; these are of several")
    if out.suffix == ".csv":
        raise BadUsage("--eval-results needs more than a .csv holds: let --out end in .jsonl")


def _write_eval_results(path: Path, results: Sequence[dict[str, Any]], known: KnownProblems) -> None:
    try:
        path.write_text(json.dumps(eval_results(results, known), indent=4) + "\n", encoding="utf-8")
    except OSError as error:
        raise BadUsage(f"cannot write {path}: {error.strerror}") from error


def _status(summary: Summary, refused: int) -> ExitStatus:
    overall = summary.overall
    if overall.ungraded > refused:
        return ExitStatus.FAULT
    if refused:
        return ExitStatus.USAGE
    return ExitStatus.OK if overall.correct == overall.candidates else ExitStatus.NOT_PASSED


class _Meter:
    """How many of what, how fast, and how long still."""

    def __init__(self, total: int, line: ProgressLine) -> None:
        self._total = total
        self._line = line
        self._outcomes: Counter[str] = Counter()
        self._started = time.monotonic()
        self._show()

    def count(self, graded: _Graded) -> None:
        record = graded.record
        self._outcomes[_REFUSED if graded.refused else record["verdict"] or record["status"]] += 1
        self._show()

    def _show(self) -> None:
        done = self._outcomes.total()
        parts = [f"{done} of {self._total}"]
        parts += [f"{count} {outcome.replace('_', ' ')}" for outcome, count in self._outcomes.most_common()]
        minutes = (time.monotonic() - self._started) / 60
        if done and minutes > 0:
            rate = done / minutes
            parts += [f"{rate:.3g} a minute", f"{(self._total - done) / rate:.3g} min left"]
        self._line.show("grading", ", ".join(parts), done / self._total if self._total else 1.0)
