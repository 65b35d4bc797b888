"""Grading of many candidates, through a service or on this machine."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar, cast

from kerneljudge.cli import render
from kerneljudge.cli.output import BadUsage, ExitStatus, emit, say, stderr
from kerneljudge.cli.progress import ProgressLine
from kerneljudge.cli.server_part import need_server
from kerneljudge.client import Client
from kerneljudge.errors import ServiceUnreachable
from kerneljudge.grading.inputs import Entry, Fields, Input, KnownProblems, Refused, Work
from kerneljudge.grading.kernelbench_results import eval_results as make_eval_results
from kerneljudge.grading.kernelbench_results import pid_of, runtime_stats
from kerneljudge.grading.meter import Meter
from kerneljudge.grading.option_texts import rules_given, tier_given
from kerneljudge.grading.options import GradingOptions
from kerneljudge.grading.results import ResultFile, graded_of
from kerneljudge.grading.todo import REFUSED, GradedEntry, Grader, Todo, refused_entry
from kerneljudge.records import ProblemSummary, ResultRecord, SubmissionRecord
from kerneljudge.summaries.summary import ProblemFacts, Summary, summarise
from kerneljudge.terms.limits import MAX_SOURCE_BYTES
from kerneljudge.terms.outcomes import Status, Verdict

__all__ = ["Fields", "grade_all"]

_POLL_S: Final = 1.0
_PATIENCE_S: Final = 3600.0
_PART_BYTES: Final = 2**18
_REFUSED_SAID: Final = 5

T = TypeVar("T")


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
    grader: Grader = (
        _this_machine(problems_dir, require_sandbox=require_sandbox)
        if service is None
        else _Service(service, with_samples=eval_results is not None)
    )
    records = grader.problems()
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
        todo = Todo(everything, left)
        if len(todo.entries) < len(survey.entries):
            say(f"{len(survey.entries) - len(todo.entries)} of {len(survey.entries)} are in {out} already")
        say(f"grading {len(todo.entries)} {grader.where}")
        found = grader.grade(todo, options)
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
    # A reference has a name here, by which refused lines are kept, and the id of its problem in the other records.
    ids = {
        entry.problem: result["problem"]
        for entry, result in zip(survey.entries, results, strict=True)
        if result["status"] == Status.DONE
    }
    facts = {record["id"]: _facts(record) for record in records}
    named = ({**result, "problem": ids.get(result["problem"], result["problem"])} for result in results)
    summary = summarise(map(graded_of, named), facts)
    if refused:
        say(f"{refused} of {len(survey.entries) + len(survey.refused)} were refused, and are in no figure")
    if as_json:
        emit({**summary.to_dict(), "refused": refused})
    else:
        render.write(render.summary(summary))
    return _status(summary, refused, len(survey.refused))


class _Service:
    """A service as a grader. With ``with_samples``, the results have the timed calls."""

    def __init__(self, client: Client, *, with_samples: bool) -> None:
        self._client = client
        self._with_samples = with_samples

    @property
    def where(self) -> str:
        return f"at {self._client.url}"

    def problems(self) -> Sequence[ProblemSummary]:
        return self._client.problems()

    def grade(self, todo: Todo, options: GradingOptions) -> Iterator[GradedEntry]:
        return _by_service(self._client, todo, options, with_samples=self._with_samples)


def _this_machine(problems_dir: Path | None, *, require_sandbox: bool) -> Grader:
    """Return this machine as a grader. Raises ``BadUsage`` where it is none, and ``ProblemError``."""
    need_server("grading on this machine", "a service does it where one answers at --url")
    from kerneljudge_server.grade_here import ThisMachine

    return ThisMachine(problems_dir, require_sandbox=require_sandbox)


def _facts(record: ProblemSummary) -> ProblemFacts:
    identity = record.get("kernelbench")
    return ProblemFacts(None if identity is None else identity["level"], tuple(record["tags"]))


class _Lines:
    """The body of a batch, made anew each time that it has to be sent."""

    def __init__(self, header: Mapping[str, Any], todo: Todo) -> None:
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


def _by_service(service: Client, todo: Todo, options: GradingOptions, *, with_samples: bool) -> Iterator[GradedEntry]:
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
            yield refused_entry(by_line[error["line"]], error["message"], options)
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
                yield GradedEntry(by_line[result["line"]], record, series)
            if over:
                break
            time.sleep(_POLL_S)
    except KeyboardInterrupt:
        say(f"its grading continues: {service.url}{batch['links']['self']}; the same command fetches the results")
        raise
    for line in sorted(unheard):
        yield refused_entry(
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
    if len(text) > MAX_SOURCE_BYTES // 4 and len(text.encode(errors="replace")) > MAX_SOURCE_BYTES:
        text = text.encode(errors="replace")[: MAX_SOURCE_BYTES + 1].decode(errors="replace")
    # A service accepts a label of at most 200 characters.
    problem = {"problem": work.problem} if work.reference is None else {"reference": work.reference}
    line = {**problem, "response" if work.is_response else "code": text, "label": work.key[-200:]}
    # Left out where there is none, for a service from before them.
    own = {"metadata": work.metadata, "parent": work.parent}
    return line | {name: value for name, value in own.items() if value is not None}


def _outcome(graded: GradedEntry) -> str:
    return REFUSED if graded.refused else graded.record["verdict"] or graded.record["status"]


def _say_refused(refused: Sequence[Refused]) -> None:
    for each in refused[:_REFUSED_SAID]:
        say(f"{each.where} is refused: {each.message}")
    if len(refused) > _REFUSED_SAID:
        say(f"and {len(refused) - _REFUSED_SAID} more, up to {refused[-1].where}")


def _result(graded: GradedEntry) -> dict[str, Any]:
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
