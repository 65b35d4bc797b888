"""The number of candidates that the running service grades a minute: ``python -m benchmarks.throughput --device cuda``.

It starts the service with a data folder of its own, hands in distinct honest candidates as one batch, and follows it to
its end. Then it does the same with other names for the extensions, so that nothing has to be compiled.

For each pass it prints verdicts, the rate, the seconds by stage, and the share of the time in which the devices were
evaluating. At the end it prints the difference of the speedups between the passes. The exit status is 1 where a
candidate does not pass.
"""

from __future__ import annotations

import argparse
import json
import math
import secrets
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from statistics import mean
from typing import Any, Final

from benchmarks.candidates import Made, make_candidates
from demo.service import running_service
from kerneljudge.client import Client
from kerneljudge.records import AttemptRecord, BatchRecord, SubmissionRecord

__all__ = ["Graded", "Pass", "grade", "graded_batch", "main", "submitted_batch", "usual_devices"]

_POLL_S: Final = 0.25
_ENDED_S: Final = 7200.0
_ATTEMPTS: Final = 2  # one at each stage
_STAGES: Final = ("building", "preparing", "loading", "constructing", "verifying", "sampling")

Span = tuple[float, float]
"""Begin and end, in seconds since the epoch."""


@dataclass(frozen=True)
class Graded:
    """One graded candidate. ``attempts`` are all that workers have made on it."""

    record: SubmissionRecord
    attempts: list[AttemptRecord]

    @property
    def passed(self) -> bool:
        return self.record["verdict"] == "passed"


@dataclass(frozen=True)
class Pass:
    """A batch from its POST to its end. ``devices`` is the number of workers that evaluate."""

    seconds: float
    devices: int
    graded: list[Graded]

    @property
    def per_minute(self) -> float:
        return 60.0 * len(self.graded) / self.seconds

    @property
    def stage_s(self) -> dict[str, list[float]]:
        """The seconds of every candidate by stage. Candidates that are evaluated together count in equal parts.

        ``the rest`` is the time of an evaluation outside its stages.
        """
        found: dict[str, list[float]] = {stage: [] for stage in (*_STAGES, "the rest")}
        for each in self.graded:
            stage_s = each.record["stage_s"]
            for stage in _STAGES:
                if stage in stage_s:
                    found[stage].append(stage_s[stage])
            if "total" in stage_s:
                found["the rest"].append(stage_s["total"] - sum(stage_s.get(stage, 0.0) for stage in _STAGES[1:]))
        return {stage: seconds for stage, seconds in found.items() if seconds}

    @property
    def first_built_s(self) -> float:
        """The seconds from the beginning of the first build to the end of the build that ends first."""
        builds = [span for _, span in _spans(self.graded, "build")]
        return min(end for _, end in builds) - min(begin for begin, _ in builds) if builds else 0.0

    @property
    def recording_s(self) -> float:
        """The mean seconds of a worker for a candidate outside its evaluation."""
        claimed_s = sum(_covered_s(spans, 0.0) for spans in self._evaluating.values())
        return (claimed_s - sum(each.record["stage_s"].get("total", 0.0) for each in self.graded)) / len(self.graded)

    @property
    def together(self) -> int:
        """The number of candidates that were evaluated together with others."""
        return sum("together" in each.record["details"] for each in self.graded)

    @property
    def _evaluating(self) -> dict[str, list[Span]]:
        by_worker: dict[str, list[Span]] = defaultdict(list)
        for worker, span in _spans(self.graded, "evaluate"):
            by_worker[worker].append(span)
        return by_worker

    @property
    def busy_share(self) -> float:
        """The share of time in which devices evaluated, from the first finished build to the last evaluation's end."""
        by_worker = self._evaluating
        builds = [span for _, span in _spans(self.graded, "build")]
        if not builds or not by_worker:
            return 0.0
        begin = min(end for _, end in builds)
        last = max(end for spans in by_worker.values() for _, end in spans)
        return sum(_covered_s(spans, begin) for spans in by_worker.values()) / (last - begin) / self.devices

    @property
    def builds_at_a_time(self) -> float:
        """The mean number of simultaneous builds, over the time in which there were any."""
        spans = [span for _, span in _spans(self.graded, "build")]
        covered_s = _covered_s(spans, 0.0)
        return sum(end - begin for begin, end in spans) / covered_s if covered_s else 0.0


def main(argv: list[str] | None = None) -> int:
    """Grade everything, and then once more with the builds in the cache. Return the exit status."""
    options = _options(argv)
    made = make_candidates(options.device, options.count, options.seed)
    devices = options.serve_devices or usual_devices(options.device)
    size = options.size or ("full" if options.device == "cuda" else "smoke")
    with (
        tempfile.TemporaryDirectory(prefix="kerneljudge-throughput-") as folder,
        running_service(Path(folder), devices=devices, measured=True) as (url, _process),
        Client(url) as client,
    ):
        passes: dict[str, Pass] = {}
        for title in ("building", "cached")[: options.passes]:
            passes[title] = grade(client, made, options.device, size, title)
            print(_told(title, passes[title]), flush=True)
        if len(passes) > 1:
            print(_told_repeats(*passes.values()))
    if options.json:
        options.json.write_text(json.dumps(_report(passes, size), indent=2))
    return 0 if all(each.passed for one in passes.values() for each in one.graded) else 1


def _options(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.throughput",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--serve-devices", help="devices that the service gets, such as cuda:0,cuda:1")
    parser.add_argument("--size", choices=("full", "smoke"), help="default: full on cuda, smoke on cpu")
    parser.add_argument("--count", type=int, default=64, help="candidates; 4 are enough for a rehearsal")
    parser.add_argument("--passes", type=int, choices=(1, 2), default=2, help="1: without the one that builds nothing")
    parser.add_argument("--seed", type=int, default=1, help="which variants are made")
    parser.add_argument("--json", type=Path, help="write everything to this file as well")
    return parser.parse_args(argv)


def usual_devices(device: str) -> str:
    """Return the service's devices where the user names none."""
    return "cuda:0" if device == "cuda" else device


def grade(client: Client, made: Sequence[Made], device: str, size: str, title: str) -> Pass:
    """Hand in everything as a batch, with ``title`` in the names of the extensions, and follow it to its end."""
    header = {"batch": {"name": title, "defaults": {"device": device, "size": size}}}
    lines = [
        {"problem": each.problem, "label": each.label, "code": each.source_with_name(f"made_{title}_{number}")}
        for number, each in enumerate(made)
    ]
    seconds, records = graded_batch(client, header, lines)
    evaluating = [
        (worker["device"] or "").partition(":")[0] for worker in client.workers() if worker["kind"] == "evaluate"
    ]
    return Pass(
        seconds, evaluating.count(device), [Graded(record, client.attempts(str(record["id"]))) for record in records]
    )


def graded_batch(
    client: Client, header: Mapping[str, Any], lines: Sequence[Mapping[str, Any]]
) -> tuple[float, list[SubmissionRecord]]:
    """Hand in ``lines`` as one batch, and follow it to its end. Return its seconds, and the record of each line."""
    begin = time.monotonic()
    batch = submitted_batch(client, header, lines)
    while batch["finished"] is None:
        if time.monotonic() - begin > _ENDED_S:
            sys.exit(f"{batch['finished_items']} of {len(lines)} are graded after {_ENDED_S:.0f} s")
        time.sleep(_POLL_S)
        batch = client.batch(batch["id"])
    seconds = time.monotonic() - begin
    return seconds, [result["submission"] for result in client.batch_results(batch["id"])]


def submitted_batch(client: Client, header: Mapping[str, Any], lines: Sequence[Mapping[str, Any]]) -> BatchRecord:
    """Hand in ``lines`` as one batch, and return its record. Exits where a line is refused."""
    content = b"".join(json.dumps(line).encode() + b"\n" for line in (header, *lines))
    batch = client.submit_batch(content, idempotency_key=secrets.token_hex(16))
    if batch["errors"]:
        sys.exit(f"line {batch['errors'][0]['line']}: {batch['errors'][0]['message']}")
    return batch


def _spans(graded: Iterable[Graded], stage: str) -> list[tuple[str, Span]]:
    """Return the times in which workers were at ``stage``, with the worker of each."""
    return [
        (attempt["worker"], (_instant(attempt["started"]), _instant(attempt["ended"])))
        for each in graded
        for attempt in each.attempts
        if attempt["stage"] == stage and attempt["ended"] is not None
    ]


def _instant(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def _covered_s(spans: Iterable[Span], since: float) -> float:
    """Return the seconds after ``since`` that lie in at least one of ``spans``."""
    covered_s, reached = 0.0, since
    for begin, end in sorted(spans):
        covered_s += max(0.0, end - max(begin, reached))
        reached = max(reached, end)
    return covered_s


def _told(title: str, found: Pass) -> str:
    verdicts = Counter(each.record["verdict"] or each.record["status"] for each in found.graded)
    counts = ", ".join(f"{count} {verdict}" for verdict, count in verdicts.most_common())
    lines = [
        f"\n{title}: {len(found.graded)} in {found.seconds / 60:.2f} minutes, {found.per_minute:.1f} a minute",
        f"  {counts}",
        f"  {'stage':<14}{'sum s':>10}{'mean s':>10}{'most s':>10}",
        *(
            f"  {stage:<14}{sum(seconds):>10.2f}{mean(seconds):>10.3f}{max(seconds):>10.3f}"
            for stage, seconds in found.stage_s.items()
        ),
        f"  first build there after {found.first_built_s:.2f} s; builds side by side: {found.builds_at_a_time:.1f}",
        f"  devices evaluating from then on: {100 * found.busy_share:.1f} % of the time of {found.devices}",
        f"  through together with others: {found.together}; besides evaluations, {found.recording_s:.3f} s for each",
    ]
    again = sum(len(each.attempts) > _ATTEMPTS for each in found.graded)
    if again:
        lines.append(f"  {again} were taken up again")
    for each in found.graded:
        if not each.passed:
            record = each.record
            message = record["message"].replace("\n", "\n      ")
            lines.append(f"  NOT PASSED: {record['label']}: {record['verdict'] or record['status']}\n      {message}")
    return "\n".join(lines)


def _told_repeats(first: Pass, second: Pass) -> str:
    """Return the repeatability of the same candidates' speedups, as a coefficient of variation."""
    lines = ["\nthe same candidates' speedups, from one pass to the other:"]
    for track in ("speedup", "speedup_training"):
        known = {each.record["label"]: each.record[track] for each in first.graded}
        pairs = [(known[each.record["label"]], each.record[track]) for each in second.graded]
        moves = [math.log(later / earlier) for earlier, later in pairs if earlier and later]
        if moves:
            # Each of the two has half of the variance of their difference.
            variation = math.sqrt(mean(move**2 for move in moves) / 2)
            most = max(map(abs, moves))
            lines.append(
                f"  {track:<18}coefficient of variation {100 * variation:.2f} %, {100 * most:.2f} % apart at the most, "
                f"of {len(moves)}"
            )
    return "\n".join(lines)


def _report(passes: dict[str, Pass], size: str) -> dict[str, Any]:
    environments = [each.record["environment"] for one in passes.values() for each in one.graded]
    return {
        "environment": next(filter(None, environments), {}),
        "size": size,
        "passes": {
            title: {
                "candidates": len(one.graded),
                "seconds": one.seconds,
                "per_minute": one.per_minute,
                "stage_s": one.stage_s,
                "first_built_s": one.first_built_s,
                "builds_at_a_time": one.builds_at_a_time,
                "devices": one.devices,
                "busy_share": one.busy_share,
                "together": one.together,
                "recording_s": one.recording_s,
                "graded": [asdict(each) for each in one.graded],
            }
            for title, one in passes.items()
        },
    }


if __name__ == "__main__":
    sys.exit(main())
