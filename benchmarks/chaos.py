"""The fate of many submissions while all processes keep dying: ``python -m benchmarks.chaos``.

It starts PostgreSQL, Redis, two API processes, two build workers and two workers that evaluate on CPUs. It hands in
thousands of submissions one by one, through both APIs. Meanwhile it inflicts faults in turn, at random moments:

- It kills each kind of process with ``SIGKILL``.
- It restarts Redis with all of its content lost.
- It restarts PostgreSQL by its fast and its immediate shutdown.

At the end, every submission must be there once, be over with its expected verdict, and have one evaluation. If it
passed, it must be on the leaderboard once. The output has the faults, the times of recovery, and the outcomes of the
attempts. The exit status is 1 where any check fails.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import queue
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx
import psycopg

from benchmarks.cheap import broken, honest, instantly_wrong, raising
from benchmarks.cluster import Cluster, Shape, running_cluster
from benchmarks.waiting import POLL_S, until

__all__ = ["Fault", "Plan", "Report", "run"]

_READY_S: Final = 180.0
_PRODUCERS: Final = 4
_WATCHED_S: Final = 0.25
_BUSY: Final = (429, 503)
_FAULTS: Final = (
    "evaluator",
    "api",
    "builder",
    "redis",
    "postgresql, fast",
    "evaluator",
    "api",
    "postgresql, immediate",
    "builder",
    "redis",
)


@dataclass(frozen=True)
class Plan:
    """The parameters of a run: ``submissions`` in all, and the numbers that pass, fail to import or fail to compile.

    The remaining submissions are no candidates. ``faults`` are inflicted in this order, on average ``every_s`` apart.
    The submissions come in at an even pace during that time. ``workers`` is the number of builders, and also of
    evaluators. ``lease_s`` is the time until a killed worker counts as lost.
    """

    submissions: int = 2000
    honest: int = 60
    raising: int = 240
    broken: int = 20
    faults: Sequence[str] = _FAULTS * 2
    every_s: float = 12.0
    seed: int = 1
    workers: int = 2
    lease_s: float = 15.0
    timeout_s: float = 3600.0

    def due_s(self, number: int) -> float:
        """Return the time at which the submission of this number comes in."""
        return len(self.faults) * self.every_s * number / self.submissions


@dataclass
class Fault:
    """A fault that was inflicted.

    ``back_s`` is the time until its target was there again. ``next_result_s`` is the time until a worker recorded a
    result after that, where anything was left to do.
    """

    what: str
    at_s: float
    back_s: float = 0.0
    next_result_s: float | None = None


@dataclass
class Report:
    """The observations. ``wrong`` is empty where nothing was lost and nothing is there twice."""

    plan: Plan
    faults: list[Fault] = field(default_factory=list)
    accepted_s: float = 0.0
    over_s: float = 0.0
    refused: Counter[str] = field(default_factory=Counter)
    attempts: Mapping[str, int] = field(default_factory=dict)
    verdicts: Mapping[str, int] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)


class Producers:
    """Threads that hand in submissions, each through one API after the other, whatever happens to these.

    A context manager.
    """

    def __init__(self, cluster: Cluster, sources: Sequence[tuple[str, str]], report: Report, begun: float) -> None:
        self._cluster = cluster
        self._report = report
        self._begun = begun
        self._waiting: queue.SimpleQueue[tuple[int, str]] = queue.SimpleQueue()
        for number, (source, _) in enumerate(sources):
            self._waiting.put((number, source))
        self._expected = len(sources)
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=self._produce, args=(each,)) for each in range(_PRODUCERS)]
        self.ids: dict[int, str] = {}

    def __enter__(self) -> Producers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    @property
    def done(self) -> bool:
        return len(self.ids) == self._expected

    def _produce(self, first: int) -> None:
        with httpx.Client(trust_env=False, timeout=30.0) as client, contextlib.suppress(queue.Empty):
            while not self._ended.is_set():
                number, source = self._waiting.get_nowait()
                if self._ended.wait(max(0.0, self._begun + self._report.plan.due_s(number) - time.monotonic())):
                    return
                submission_id = self._hand_in(client, number, source, first)
                if submission_id is None:
                    return
                with self._lock:
                    self.ids[number] = submission_id
                    if self.done:
                        self._report.accepted_s = time.monotonic() - self._begun

    def _hand_in(self, client: httpx.Client, number: int, source: str, first: int) -> str | None:
        """Hand in, repeatedly and with one key, until an API has accepted it; ``None`` where the run ends before."""
        body = {"problem": "relu", "device": "cpu", "size": "smoke", "code": source, "author": f"author {number % 7}"}
        for attempt in itertools.count(first + number):
            url = self._cluster.urls[attempt % len(self._cluster.urls)]
            key = {"Idempotency-Key": f"{self._report.plan.seed}-{number}"}
            try:
                answer = client.post(f"{url}/api/v1/submissions", json=body, headers=key)
            except httpx.TransportError as error:
                self._refused(type(error).__name__)
            else:
                if answer.is_success:
                    return str(answer.json()["id"])
                self._refused(str(answer.status_code))
                if answer.status_code not in _BUSY:
                    self._report.wrong.append(f"submission {number} was answered {answer.status_code}: {answer.text}")
                    return None
            if self._ended.wait(POLL_S):
                return None
        raise AssertionError("counting ends nowhere")

    def _refused(self, how: str) -> None:
        with self._lock:
            self._report.refused[how] += 1


class Watch:
    """A thread that records the times of workers' results and of the end. A context manager."""

    def __init__(self, cluster: Cluster, begun: float) -> None:
        self._cluster = cluster
        self._begun = begun
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self.recorded_at_s: list[float] = []
        self.over = 0

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _look(self) -> None:
        recorded = 0
        while not self._ended.wait(_WATCHED_S):
            with contextlib.suppress(psycopg.Error):
                ((now, over),) = self._cluster.query(
                    "SELECT (SELECT count(*) FROM attempts WHERE outcome IN ('built', 'done')),"
                    " (SELECT count(*) FROM submissions WHERE finished_at IS NOT NULL)"
                )
                assert isinstance(now, int)
                assert isinstance(over, int)
                if now > recorded:
                    recorded = now
                    self.recorded_at_s.append(time.monotonic() - self._begun)
                self.over = over


def run(plan: Plan, folder: Path) -> Report:
    """Run ``plan``, with all files in ``folder``. Call it in the main thread."""
    report = Report(plan)
    chance = random.Random(plan.seed)  # noqa: S311 - moments to repeat, no secret
    sources = _sources(plan, chance)
    # Other work makes a machine noisy for the whole run, so a longer pause would not help.
    settings = {"KERNELJUDGE_LEASE_S": str(plan.lease_s), "KERNELJUDGE_MEASURE_AGAIN_S": "1,1,1"}
    shape = Shape(builders=plan.workers, evaluators=plan.workers, settings=settings)
    with running_cluster(shape, folder, durable=True) as cluster:
        begun = time.monotonic()
        with Producers(cluster, sources, report, begun) as producers, Watch(cluster, begun) as watch:

            def over() -> bool:
                return bool(report.wrong) or watch.over >= plan.submissions

            for what in plan.faults:
                if not _pause(chance.uniform(0.3, 1.7) * plan.every_s, over):
                    break
                report.faults.append(fault := Fault(what, time.monotonic() - begun))
                fault.back_s = _inflict(what, cluster, chance)
            with contextlib.suppress(TimeoutError):
                until(over, "every submission to be over", plan.timeout_s)
            report.over_s = time.monotonic() - begun
        for fault in report.faults:
            later = (at for at in watch.recorded_at_s if at > fault.at_s)
            fault.next_result_s = next((at - fault.at_s for at in later), None)
        cluster.await_ready()
        report.wrong += _wrong(cluster, plan, producers.ids, sources)
        report.attempts = _counts(cluster, "SELECT stage || ', ' || outcome, count(*) FROM attempts GROUP BY 1")
        report.verdicts = _counts(cluster, "SELECT verdict, count(*) FROM evaluations GROUP BY 1")
    return report


def _sources(plan: Plan, chance: random.Random) -> list[tuple[str, str]]:
    """Return (source, expected verdict) of each submission."""
    working = [*honest(plan.honest), *raising(plan.raising), *broken(plan.broken)]
    sources = [*working, *instantly_wrong(plan.submissions - len(working))]
    chance.shuffle(sources)
    return sources


def _pause(seconds: float, over: Callable[[], bool]) -> bool:
    """Wait. Return ``False`` where all is over before."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if over():
            return False
        time.sleep(POLL_S)
    return True


def _inflict(what: str, cluster: Cluster, chance: random.Random) -> float:
    """Inflict a fault, and wait until its target is there again. Return the seconds that it took."""
    begun = time.monotonic()
    if what == "redis":
        cluster.broker.stop(signal.SIGKILL)
        cluster.broker.start()
    elif what.startswith("postgresql"):
        cluster.database.stop(signal.SIGINT if what.endswith("fast") else signal.SIGQUIT)
        cluster.database.start()
        cluster.await_ready()
    else:
        _kill_one(what, cluster, chance)
    return time.monotonic() - begun


def _kill_one(kind: str, cluster: Cluster, chance: random.Random) -> None:
    until(lambda: bool(cluster.processes(kind)), f"a process of the kind {kind}", _READY_S)
    victim = chance.choice(cluster.processes(kind))
    known = set() if kind == "api" else cluster.workers(kind)
    os.kill(victim.pid, signal.SIGKILL)
    until(lambda: not victim.alive, f"{victim.command} to be gone")
    if kind == "api":
        cluster.await_ready()
    else:
        until(lambda: bool(cluster.workers(kind) - known), f"another {kind}", _READY_S)


def _wrong(cluster: Cluster, plan: Plan, ids: Mapping[int, str], sources: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Yield the violations, by the database and by the API's leaderboards."""
    if len(ids) != plan.submissions:
        yield f"{plan.submissions - len(ids)} submissions were never accepted"
    if len(set(ids.values())) != len(ids):
        yield "two submissions have one id"
    found = {str(row[0]): row[1:] for row in cluster.query(_EACH)}
    strange = sorted(set(found) - set(ids.values()))
    if strange:
        yield f"{len(strange)} submissions are there that nobody was told of, such as {strange[0]}"
    for number, submission_id in ids.items():
        if submission_id not in found:
            yield f"{submission_id} was accepted, and is not there"
            continue
        status, verdict, message, evaluations = found[submission_id]
        if status != "done" or verdict != sources[number][1]:
            yield f"{submission_id} is {status}, {verdict} ({message}), and not {sources[number][1]}"
        if evaluations != 1:
            yield f"{submission_id} has {evaluations} evaluations"
    for what, statement in _NEVER.items():
        ((count,),) = cluster.query(statement)
        if count:
            yield f"{count} {what}"
    yield from _wrong_boards(cluster)


_EACH: Final = """
    SELECT s.id, s.status, min(e.verdict), s.message, count(e.id)
    FROM submissions s LEFT JOIN evaluations e ON e.submission_id = s.id GROUP BY s.id
"""
_FIGURES: Final = "SELECT count(*) FROM evaluations WHERE verdict = 'passed' AND speedup IS NOT NULL"
_NEVER: Final = {
    "submissions were graded by two attempts": """
        SELECT count(*) FROM
        (SELECT 1 FROM attempts WHERE outcome = 'done' GROUP BY submission_id HAVING count(*) > 1) twice
    """,
    "attempts have no end": "SELECT count(*) FROM attempts WHERE outcome = 'running'",
    "submissions are still claimed": "SELECT count(*) FROM submissions WHERE claim_token IS NOT NULL",
    "submissions stand twice in one ranking": """
        SELECT count(*) FROM
        (SELECT 1 FROM leaderboard_entries GROUP BY ranking_id, submission_id HAVING count(*) > 1) twice
    """,
    "rankings count other entries than they have": """
        SELECT count(*) FROM rankings r
        WHERE entries <> (SELECT count(*) FROM leaderboard_entries WHERE ranking_id = r.id)
    """,
    "verdicts are counted otherwise than evaluations say": """
        SELECT count(*) FROM
        (SELECT verdict, sum(count) AS counted FROM verdict_counts GROUP BY verdict) c
        FULL JOIN (SELECT verdict, count(*) AS there FROM evaluations GROUP BY verdict) e USING (verdict)
        WHERE counted IS DISTINCT FROM there
    """,
}


def _wrong_boards(cluster: Cluster) -> Iterator[str]:
    """Check each API's leaderboards, as any user may read them: every passed submission with a figure is there once.

    A submission that a busy machine has left unsettled to the end has no figure.
    """
    ((figures,),) = cluster.query(_FIGURES)
    for url in cluster.urls:
        listed = Counter(_listed(url))
        if len(listed) != figures or max(listed.values(), default=1) > 1:
            yield f"{url} lists {listed.total()} entries of {len(listed)} submissions, and {figures} have figures"


def _listed(url: str) -> Iterator[str]:
    """Yield the submission of each entry of the leaderboard, page by page."""
    asked: dict[str, Any] = {"problem": "relu", "device": "cpu", "size": "smoke", "limit": 500}
    while True:
        page = httpx.get(f"{url}/api/v1/leaderboard", params=asked, trust_env=False).raise_for_status().json()
        yield from (entry["submission"] for entry in page["entries"])
        if page["next_cursor"] is None:
            return
        asked["cursor"] = page["next_cursor"]


def _counts(cluster: Cluster, statement: str) -> dict[str, int]:
    return {str(name): int(str(count)) for name, count in sorted(cluster.query(statement), key=str)}


def _print(report: Report) -> None:
    plan = report.plan
    working = plan.honest + plan.raising + plan.broken
    print(f"submissions   {plan.submissions:>7}   of which {working} need processes")
    print(f"accepted      {report.accepted_s:>7.1f} s   by both APIs, at an even pace")
    print(
        f"all over      {report.over_s:>7.1f} s   {60 * working / report.over_s:.0f} a minute of those with processes"
    )
    for title, counts in (
        ("tried again", report.refused),
        ("verdicts", report.verdicts),
        ("attempts", report.attempts),
    ):
        print(f"{title:<13} {'; '.join(f'{count} {name}' for name, count in counts.items()) or 'none'}")
    print(f"\n{'done to':<24}{'at s':>8}{'back after s':>15}{'next result after s':>22}")
    for fault in report.faults:
        following = "" if fault.next_result_s is None else f"{fault.next_result_s:.1f}"
        print(f"{fault.what:<24}{fault.at_s:>8.1f}{fault.back_s:>15.1f}{following:>22}")
    print(f"\n{'by kind':<24}{'times':>8}{'back, median s':>17}{'longest s':>12}{'next result, longest s':>25}")
    for what in dict.fromkeys(fault.what for fault in report.faults):
        same = [fault for fault in report.faults if fault.what == what]
        back = sorted(fault.back_s for fault in same)
        waited = [fault.next_result_s for fault in same if fault.next_result_s is not None]
        print(
            f"{what:<24}{len(same):>8}{back[len(back) // 2]:>17.1f}{back[-1]:>12.1f}{max(waited, default=0.0):>25.1f}"
        )
    print()
    print("\n".join(report.wrong[:20]) or "nothing is lost, nothing is graded twice, and every submission is over")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--submissions", type=int, default=Plan.submissions)
    parser.add_argument("--honest", type=int, default=Plan.honest, help="how many of them pass")
    parser.add_argument("--raising", type=int, default=Plan.raising, help="how many cannot be imported")
    parser.add_argument("--broken", type=int, default=Plan.broken, help="how many cannot be compiled")
    parser.add_argument("--every-s", type=float, default=Plan.every_s, help="mean time between two faults")
    parser.add_argument("--seed", type=int, default=Plan.seed)
    parser.add_argument("--keep", type=Path, help="an empty folder for the logs, which stays")
    return parser.parse_args()


def main() -> int:
    given = _arguments()
    plan = Plan(given.submissions, given.honest, given.raising, given.broken, every_s=given.every_s, seed=given.seed)
    with contextlib.ExitStack() as stack:
        folder = given.keep or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kerneljudge-chaos-")))
        report = run(plan, folder.absolute())
    _print(report)
    return 1 if report.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
