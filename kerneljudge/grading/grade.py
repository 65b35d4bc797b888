"""Grading of many candidates, through a service or on this machine."""

from __future__ import annotations

import json
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeVar, cast

from evaluator.candidates.candidate import MAX_BYTES
from evaluator.config import EvalConfig
from evaluator.evaluation import Status, Verdict
from evaluator.problems.problem import Problem
from evaluator.summaries.summary import ProblemFacts, Summary, summarise
from kerneljudge.cli import render
from kerneljudge.cli.output import BadUsage, ExitStatus, emit, say, stderr
from kerneljudge.cli.progress import ProgressLine
from kerneljudge.client import Client
from kerneljudge.errors import ServiceUnreachable
from kerneljudge.grading import local
from kerneljudge.grading.inputs import Entry, Fields, Input, KnownProblems, Refused, Work
from kerneljudge.grading.kernelbench_results import eval_results as make_eval_results
from kerneljudge.grading.kernelbench_results import pid_of, runtime_stats
from kerneljudge.grading.local_record import blank_record
from kerneljudge.grading.meter import Meter
from kerneljudge.grading.option_texts import rules_given, tier_given
from kerneljudge.grading.options import GradingOptions
from kerneljudge.grading.references import problem_of
from kerneljudge.grading.results import ResultFile, graded_of, is_unsettled
from kerneljudge.grading.sources import Given, UnusableFile, known_problems
from kerneljudge.records import ProblemSummary, ResultRecord, SubmissionRecord, TierName

__all__ = ["Fields", "grade_all"]

_POLL_S: Final = 1.0
_PATIENCE_S: Final = 3600.0
_PART_BYTES: Final = 2**18
_REFUSED: Final = "refused"
_REFUSED_SAID: Final = 5

T = TypeVar("T")


@dataclass(frozen=True)
class _Graded:
    """The result of one candidate.

    ``samples_ms`` are its timed calls, where they were requested. With ``again``, it replaces an earlier result.
    """

    entry: Entry
    record: SubmissionRecord
    samples_ms: Sequence[float] = ()
    refused: bool = False
    again: bool = False


def grade_all(
    given: Path,
    out: Path,
    fields: Fields,
    options: GradingOptions,
    *,
    problem: str | None,
    eval_results: Path | None,
    service: Client | None,
    problems_dir: Path | None,
    require_sandbox: bool,
    as_json: bool,
) -> ExitStatus:
    """Grade the candidates in ``given`` that are not in ``out``, and print a summary of all of them.

    Without a ``service``, they are graded on this machine. Raises ``BadUsage``, ``UnusableFile``, and the errors of the
    client and the engine.
    """
    problems = {} if service is not None else known_problems(problems_dir)
    records = service.problems() if service is not None else [local.problem_record(task) for task in problems.values()]
    known = KnownProblems(records)
    if out.exists() and given.exists() and out.samefile(given):
        raise BadUsage(f"--out is the input itself, {given}")
    everything = Input(given, fields, problem, known, options.precision)
    survey = everything.survey()
    _say_refused(survey.refused)
    rules = rules_given(options.rules)
    if tier_given(options.tier) == "check" and eval_results is not None:
        raise BadUsage("--eval-results has runtimes, and --tier check times nothing")
    if eval_results is not None:
        _check_eval_results(survey.entries, out, eval_results, known)
    refused = len(survey.refused)
    with ResultFile(out) as file:
        left = [entry for entry in survey.entries if not file.has(entry.key, entry.digest, options.tier, rules or {})]
        todo = _Todo(everything, left)
        if len(todo.entries) < len(survey.entries):
            say(f"{len(survey.entries) - len(todo.entries)} of {len(survey.entries)} are in {out} already")
        where = "on this machine" if service is None else f"at {service.url}"
        say(f"grading {len(todo.entries)} {where}")
        found = (
            _by_service(service, todo, options, with_samples=eval_results is not None)
            if service is not None
            else _here(problems, todo, options, require_sandbox=require_sandbox)
        )
        with ProgressLine(stderr()) as line:
            meter = Meter(len(todo.entries), line)
            for graded in found:
                refused += graded.refused
                file.add(_result(graded))
                if not graded.again:
                    meter.count(_outcome(graded))
        results = [file.results[entry.key] for entry in survey.entries]
    if eval_results is not None:
        _write_eval_results(eval_results, results, known)
    facts = {record["id"]: _facts(record) for record in records}
    summary = summarise(map(graded_of, results), facts)
    if refused:
        say(f"{refused} of {len(survey.entries) + len(survey.refused)} were refused, and are in no figure")
    if as_json:
        emit({**summary.to_dict(), "refused": refused})
    else:
        render.write(render.summary(summary))
    return _status(summary, refused, len(survey.refused))


def _facts(record: ProblemSummary) -> ProblemFacts:
    identity = record.get("kernelbench")
    return ProblemFacts(None if identity is None else identity["level"], tuple(record["tags"]))


class _Todo:
    """The candidates of an input that are still to be graded."""

    def __init__(self, everything: Input, entries: Sequence[Entry]) -> None:
        self.entries = entries
        self._everything = everything
        self._wanted = {entry.key: entry for entry in entries}

    def __iter__(self) -> Iterator[tuple[Entry, Work]]:
        """Yield them in the order of ``entries``. Raises ``UnusableFile`` where the input has changed."""
        count = 0
        for work in self._everything:
            if isinstance(work, Work) and work.key in self._wanted:
                count += 1
                if work.entry != self._wanted[work.key]:
                    raise UnusableFile(f"{work.key} has changed since the input was first read; grade it again")
                yield self._wanted[work.key], work
        if count < len(self.entries):
            raise UnusableFile("the input has lost lines since it was first read; grade it again")


class _Lines:
    """The body of a batch, made anew each time that it has to be sent."""

    def __init__(self, header: Mapping[str, Any], todo: _Todo) -> None:
        self._header = header
        self._todo = todo

    def __iter__(self) -> Iterator[bytes]:
        part = bytearray(json.dumps(self._header).encode() + b"\n")
        for _, work in self._todo:
            part += json.dumps(_submission(work)).encode() + b"\n"
            if len(part) >= _PART_BYTES:
                yield bytes(part)
                part.clear()
        yield bytes(part)


def _by_service(service: Client, todo: _Todo, options: GradingOptions, *, with_samples: bool) -> Iterator[_Graded]:
    """Grade through one batch of the service. Results come as soon as they are there."""
    if not todo.entries:
        return
    defaults = {name: value for name, value in options.to_request().items() if value is not None}
    # The visibility is that of the batch as a whole, and its lines have the same.
    visibility = {"visibility": defaults.pop("visibility")} if "visibility" in defaults else {}
    header = {"batch": {**visibility, "defaults": defaults}}
    key = secrets.token_hex(16)
    batch = _answered(lambda: service.submit_batch(_Lines(header, todo), idempotency_key=key))
    try:
        # Line 1 is the header.
        by_line = dict(enumerate(todo.entries, start=2))
        for error in batch["errors"]:
            yield _refused(by_line[error["line"]], error["message"], options)
        unheard = set(by_line).difference(error["line"] for error in batch["errors"])
        cursor = 0
        while True:
            over = _answered(lambda: service.batch(batch["id"]))["finished"] is not None
            for result in _results(service, batch["id"], cursor):
                cursor = result["cursor"]
                # The submission has the metadata of its first line, which may be a line of another batch.
                own: dict[str, Any] = {name: result.get(name) for name in ("metadata", "parent")}
                record = cast(SubmissionRecord, {**result["submission"], **own})
                timed = with_samples and record["verdict"] == Verdict.PASSED and record["latency_ms"] is not None
                series = _samples(service, str(record["id"])) if timed else ()
                # A submission that failed and was retried meanwhile is over twice. The last time counts.
                unheard.discard(result["line"])
                yield _Graded(by_line[result["line"]], record, series)
            if over:
                break
            time.sleep(_POLL_S)
    except KeyboardInterrupt:
        say(f"its grading continues: {service.url}{batch['links']['self']}; the same command fetches the results")
        raise
    for line in sorted(unheard):
        yield _refused(
            by_line[line], f"one of the {batch['errors_total']} lines of which the service names the first", options
        )


def _results(service: Client, batch_id: str, cursor: int) -> Iterator[ResultRecord]:
    """Yield the finished items after ``cursor``, however often the service goes away meanwhile."""
    patience = _Patience()
    while True:
        try:
            for result in service.stream_batch_results(batch_id, cursor):
                patience = _Patience()
                cursor = result["cursor"]
                yield result
            return
        except ServiceUnreachable as error:
            patience.wait(error)


def _samples(service: Client, submission_id: str) -> Sequence[float]:
    series = _answered(lambda: service.samples(submission_id)).get("inference")
    return series["candidate_device_ms"] if series else ()


def _answered(ask: Callable[[], T]) -> T:
    """Return the result of ``ask``, however often the service goes away meanwhile."""
    patience = _Patience()
    while True:
        try:
            return ask()
        except ServiceUnreachable as error:
            patience.wait(error)


class _Patience:
    """The patience with a service that goes away. It keeps the batch, so that waiting is worth it."""

    def __init__(self) -> None:
        self._deadline = time.monotonic() + _PATIENCE_S
        self._said = False

    def wait(self, error: ServiceUnreachable) -> None:
        """Wait before the next request. Raises ``error`` once the service was away for too long."""
        if time.monotonic() >= self._deadline:
            raise error
        if not self._said:
            say(f"{error}; it is asked again for up to {_PATIENCE_S / 60:.0f} min")
            self._said = True
        time.sleep(_POLL_S)


def _submission(work: Work) -> dict[str, Any]:
    """Return the request for a service. A text that is too large to be graded is cut just above the limit."""
    text = work.text
    if len(text) > MAX_BYTES // 4 and len(text.encode(errors="replace")) > MAX_BYTES:
        text = text.encode(errors="replace")[: MAX_BYTES + 1].decode(errors="replace")
    # A service accepts a label of at most 200 characters.
    problem = {"problem": work.problem} if work.reference is None else {"reference": work.reference}
    line = {**problem, "response" if work.is_response else "code": text, "label": work.key[-200:]}
    # Left out where there is none, for a service from before them.
    own = {"metadata": work.metadata, "parent": work.parent}
    return line | {name: value for name, value in own.items() if value is not None}


def _here(
    problems: Mapping[str, Problem], todo: _Todo, options: GradingOptions, *, require_sandbox: bool
) -> Iterator[_Graded]:
    """Grade on this machine, one after another on one engine. The same source for the same problem is graded once."""
    device = options.device or local.default_device()

    def configure(problem: Problem) -> EvalConfig:
        return local.configure(
            problem,
            device,
            options.size,
            options.precision,
            options.require_gradients,
            options.baseline,
            limits=options.limits,
            tier=options.tier,
            rules=options.rules,
        )

    # Options that a problem does not have are reported before anything is graded.
    wanted = {entry.problem for entry in todo.entries}
    configs = {name: configure(problem) for name, problem in problems.items() if name in wanted}
    left = Counter(entry.digest for entry in todo.entries)
    seen: dict[str, _Graded] = {}
    unsettled: list[tuple[Entry, Work]] = []
    with local.Bench(device, require_sandbox=require_sandbox) as bench:

        def grade(entry: Entry, work: Work) -> _Graded:
            given = Given(work.text, work.is_response, work.key)
            if work.reference is None:
                problem, config = problems[work.problem], configs[work.problem]
            else:
                problem = problem_of(work.reference, options.precision)
                try:
                    config = configure(problem)
                except BadUsage as error:
                    return _refused(entry, str(error), options)
            outcome = bench.grade(problem, given.parse(), config)
            outcome.record["author"], outcome.record["tier"] = options.author, cast(TierName, options.tier)
            return _Graded(entry, outcome.record, outcome.samples_ms)

        for entry, work in todo:
            known = seen.pop(entry.digest, None) or grade(entry, work)
            left[entry.digest] -= 1
            if is_unsettled(known.record):
                unsettled.append((entry, work))
            elif left[entry.digest]:
                # An unsettled result is not reused. A result is kept only while the same source comes again.
                seen[entry.digest] = known
            yield replace(known, entry=entry, record=_with_own(known.record, work))
        if unsettled:
            say(f"the machine was too noisy for {len(unsettled)} of them: they are measured once more")
        for entry, work in unsettled:
            graded = grade(entry, work)
            yield replace(graded, record=_with_own(graded.record, work), again=True)


def _with_own(record: SubmissionRecord, work: Work) -> SubmissionRecord:
    """Return ``record`` with the metadata and the parent of ``work``, whose grading others may share."""
    return cast(SubmissionRecord, {**record, "metadata": work.metadata, "parent": work.parent})


def _refused(entry: Entry, why: str, options: GradingOptions) -> _Graded:
    known = {"status": str(Status.FAILED), "message": f"{_REFUSED}: {why}"}
    record = blank_record(entry.problem, **known, device=options.device, size=options.size, tier=options.tier)
    return _Graded(entry, record, refused=True)


def _outcome(graded: _Graded) -> str:
    return _REFUSED if graded.refused else graded.record["verdict"] or graded.record["status"]


def _say_refused(refused: Sequence[Refused]) -> None:
    for each in refused[:_REFUSED_SAID]:
        say(f"{each.where} is refused: {each.message}")
    if len(refused) > _REFUSED_SAID:
        say(f"and {len(refused) - _REFUSED_SAID} more, up to {refused[-1].where}")


def _result(graded: _Graded) -> dict[str, Any]:
    entry = graded.entry
    result = {"key": entry.key, "digest": entry.digest, "sample": entry.sample, **graded.record}
    if graded.samples_ms:
        result["runtime_stats"] = runtime_stats(graded.samples_ms, graded.record)
    return result


def _check_eval_results(entries: Sequence[Entry], out: Path, eval_results: Path, known: KnownProblems) -> None:
    """Check the conditions of ``--eval-results`` now, and not after hours of grading. Raises ``BadUsage``."""
    levels = {pid_of(problem, known)[0] for problem in {entry.problem for entry in entries}}
    if len(levels) > 1:
        raise BadUsage("--eval-results has one level, as KernelBench's file says none; these are of several")
    if out.suffix == ".csv":
        raise BadUsage("--eval-results needs more than a .csv holds: let --out end in .jsonl or .parquet")
    if not eval_results.parent.is_dir():
        raise BadUsage(f"cannot write {eval_results}: no folder {eval_results.parent}")


def _write_eval_results(path: Path, results: Sequence[dict[str, Any]], known: KnownProblems) -> None:
    try:
        path.write_text(json.dumps(make_eval_results(results, known), indent=4) + "\n", encoding="utf-8")
    except OSError as error:
        raise BadUsage(f"cannot write {path}: {error.strerror}") from error


def _status(summary: Summary, refused: int, unread: int) -> ExitStatus:
    """Return the exit status. ``unread`` of the ``refused`` lines are in no summary."""
    overall = summary.overall
    if overall.ungraded > refused - unread:
        return ExitStatus.FAULT
    if refused:
        return ExitStatus.USAGE
    return ExitStatus.OK if overall.correct == overall.candidates else ExitStatus.NOT_PASSED
