"""The fate of a large batch when its service keeps dying: ``python -m benchmarks.crash_recovery``.

It starts ``kerneljudge serve`` (SQLite, device ``cpu``, size ``smoke``), and hands in ten thousand lines by one POST.
It kills API, workers and, once, everything with ``SIGKILL`` at random moments, the first time while the lines come in.
This program itself starts what the service's supervisor does not start again, as an administrator would.

At the end, every line must have exactly one result with its expected verdict. The order of completion must have no gap
and no repetition, and a reader that followed it must have seen the same. Summary and webhook must agree. The output has
rates, the time from each kill to its recovery, and memory. The exit status is 1 where any check fails.
"""

from __future__ import annotations

import argparse
import contextlib
import http.server
import json
import os
import random
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

import httpx

from benchmarks.cheap import broken, honest, instantly_wrong, raising
from benchmarks.waiting import POLL_S, until
from evaluator.interpreter import python_command, python_environment
from kerneljudge.client import Client
from kerneljudge.errors import ServiceUnreachable
from storage.batches.webhooks import signature
from tests.processes import Process, children, descendants, look, resident_bytes

__all__ = ["Plan", "Report", "run"]

_READY_S: Final = 180.0
_STOPPED_S: Final = 60.0
_SAMPLED_S: Final = 0.5
_SLICES: Final = 8
_SECRET: Final = secrets.token_hex(16)
_ROLES: Final = {"api": "api", "builder": "worker --queue build", "evaluator": "worker --queue evaluate"}


@dataclass(frozen=True)
class Plan:
    """The parameters of a run: ``lines`` in all, and the numbers of distinct ones that need processes.

    Most duplicates repeat these. ``kills`` are roles in this order, or ``serve`` for everything; the first is killed
    while the lines come in. ``every_s`` is the mean time between two kills. ``lease_s`` is the time until a killed
    worker counts as lost.
    """

    lines: int = 10_000
    honest: int = 24
    raising: int = 12
    broken: int = 6
    kills: Sequence[str] = ("api", "evaluator", "api", "builder", "evaluator", "serve", "api", "evaluator")
    every_s: float = 15.0
    seed: int = 1
    lease_s: float = 15.0
    timeout_s: float = 3600.0


@dataclass
class Kill:
    """A kill of a process.

    ``back_s`` is the time until the process, or the service, was there again. ``next_result_s`` is the time until the
    next line was over after that, where any was left.
    """

    role: str
    at_s: float
    back_s: float
    next_result_s: float | None = None


@dataclass
class Report:
    """The observations. ``faults`` is empty where nothing was lost."""

    plan: Plan
    accepted_s: float = 0.0
    graded_s: float = 0.0
    seen_at_s: list[float] = field(default_factory=list)
    kills: list[Kill] = field(default_factory=list)
    attempts: int = 0
    verdicts: Mapping[str, int] = field(default_factory=dict)
    memory_mib: list[tuple[float, Mapping[str, float]]] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)


class Service:
    """``kerneljudge serve`` with a data folder of its own. A context manager, which leaves no process behind."""

    def __init__(self, folder: Path, lease_s: float) -> None:
        self._folder = folder
        # Other work makes a machine noisy for the whole run, so a longer pause would not help.
        changes = {"KERNELJUDGE_LEASE_S": str(lease_s), "KERNELJUDGE_MEASURE_AGAIN_S": "1"}
        self._environment = {**python_environment(os.environ), **changes}
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        left = self.processes
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(_STOPPED_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for process in left:
            if process.alive:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGKILL)

    def start(self) -> None:
        """Start it, and wait until it is ready."""
        command = python_command("-m", "kerneljudge", "serve", "--devices", "cpu")
        options = ["--port", str(self.port), "--data-dir", str(self._folder / "data")]
        with (self._folder / "serve.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*command, *options], stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self._environment
            )
        until(self.is_ready, "the service to be ready", _READY_S)

    def is_ready(self) -> bool:
        """Whether the service answers."""
        assert self._process.poll() is None, f"serve ended: {(self._folder / 'serve.log').read_text()[-2000:]}"
        with contextlib.suppress(httpx.TransportError):
            return httpx.get(f"{self.url}/readyz", timeout=2.0, trust_env=False).is_success
        return False

    @property
    def processes(self) -> list[Process]:
        """Return all processes of the service."""
        return [*filter(None, [look(self._process.pid)]), *descendants(self._process.pid)]

    def process(self, role: str) -> Process | None:
        """Return the process with the given role at the moment."""
        below = children(self._process.pid)
        return next((each for each in below if f"runtime.parent_death {_ROLES[role]}" in each.command), None)

    def kill(self, role: str) -> float:
        """Kill ``role`` by ``SIGKILL``. Return the seconds until it is there again."""
        begun = time.monotonic()
        if role == "serve":
            left = self.processes
            self._process.kill()
            self._process.wait()
            until(lambda: not any(each.alive for each in left), "what serve left behind to end")
            self.start()
            return time.monotonic() - begun
        victim = self.process(role)
        if victim is None:
            # It is being started at the moment, after an earlier kill.
            until(lambda: self.process(role) is not None, f"the {role}")
            return self.kill(role)
        known = self._workers() if role != "api" else {}
        os.kill(victim.pid, signal.SIGKILL)
        until(lambda: not victim.alive, f"the {role} to be gone")
        if role == "api":
            until(self.is_ready, "the API to be ready again", _READY_S)
        else:
            kind = "build" if role == "builder" else "evaluate"
            until(
                lambda: any(each == kind for name, each in self._workers().items() if name not in known),
                f"another {role}",
                _READY_S,
            )
        return time.monotonic() - begun

    def _workers(self) -> dict[str, str]:
        """Return the kind of each worker that has ever registered, by its id."""
        found: list[dict[str, str]] = []

        def answered() -> bool:
            with contextlib.suppress(httpx.TransportError):
                answer = httpx.get(f"{self.url}/api/v1/workers", timeout=5.0, trust_env=False)
                found.extend(answer.raise_for_status().json()["items"])
                return True
            return False

        until(answered, "the list of workers")
        return {each["id"]: each["kind"] for each in found}


class Receiver:
    """A receiver of the webhook's deliveries. A context manager."""

    def __init__(self) -> None:
        self.received: list[tuple[bool, dict[str, Any]]] = []
        received = self.received

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                signed = signature(_SECRET, self.headers["X-Kerneljudge-Timestamp"], body)
                received.append((signed == self.headers["X-Kerneljudge-Signature"], json.loads(body)))
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Ignore the message."""

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


class Follower:
    """A thread that reads results as they come, like a trainer that is fed by them. A context manager."""

    def __init__(self, url: str, batch_id: str, begun: float) -> None:
        self._client = Client(url, retries=1000, sleep=lambda _: time.sleep(POLL_S))
        self._batch_id = batch_id
        self._begun = begun
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._follow)
        self.seen: list[tuple[int, int]] = []
        self.at_s: list[float] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self._client.close()

    def _follow(self) -> None:
        last_round = False
        while not last_round:
            last_round = self._ended.wait(POLL_S)
            cursor = self.seen[-1][0] if self.seen else 0
            for result in self._client.stream_batch_results(self._batch_id, cursor):
                self.seen.append((result["cursor"], result["line"]))
                self.at_s.append(time.monotonic() - self._begun)


class Memory:
    """A thread that samples the memory of each process. A context manager."""

    def __init__(self, service: Service, into: list[tuple[float, Mapping[str, float]]], begun: float) -> None:
        self._service = service
        self._into = into
        self._begun = begun
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._sample)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._ended.wait(_SAMPLED_S):
            found = {}
            for role in _ROLES:
                process = self._service.process(role)
                if process is not None:
                    found[role] = _resident_mib(process.pid)
            self._into.append((time.monotonic() - self._begun, found))


def run(plan: Plan, folder: Path) -> Report:
    """Run ``plan``, with all files in ``folder``."""
    report = Report(plan)
    chance = random.Random(plan.seed)  # noqa: S311 - moments to repeat, no secret
    expected = dict(enumerate(_lines(plan, chance), start=2))
    ended = threading.Event()
    with Service(folder, plan.lease_s) as service, Receiver() as receiver:
        header = {"batch": {"name": "crash recovery", "webhook": {"url": receiver.url, "secret": _SECRET}}}
        lines = [header, *({"problem": "relu", "device": "cpu", "code": code} for code, _ in expected.values())]
        body = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
        begun = time.monotonic()
        with Memory(service, report.memory_mib, begun):
            killer = threading.Thread(target=_kill_all, args=(service, plan, chance, report, begun, ended))
            killer.start()
            try:
                _follow_to_the_end(service, body, report, begun, expected, receiver)
            finally:
                ended.set()
                killer.join()
    return report


def _follow_to_the_end(
    service: Service,
    body: bytes,
    report: Report,
    begun: float,
    expected: Mapping[int, tuple[str, str]],
    receiver: Receiver,
) -> None:
    plan = report.plan
    with Client(service.url, retries=1000, sleep=lambda seconds: time.sleep(min(seconds, 1.0))) as client:
        batch = client.submit_batch(body, idempotency_key=secrets.token_hex(16))
        report.accepted_s = time.monotonic() - begun

        def over() -> bool:
            with contextlib.suppress(ServiceUnreachable):
                return client.batch(batch["id"])["finished"] is not None
            return False

        with Follower(service.url, batch["id"], begun) as follower:
            until(over, "the batch to be over", plan.timeout_s)
            report.graded_s = time.monotonic() - begun
        report.seen_at_s = follower.at_s
        for kill in report.kills:
            later = (at for at in follower.at_s if at > kill.at_s)
            kill.next_result_s = next((at - kill.at_s for at in later), None)
        with contextlib.suppress(TimeoutError):
            until(lambda: bool(receiver.received), "the webhook", 60.0)
        results = list(client.stream_batch_results(batch["id"]))
        record = client.batch(batch["id"])
        report.attempts = sum({each["submission"]["id"]: each["submission"]["attempts"] for each in results}.values())
    report.verdicts = Counter(str(each["submission"]["verdict"]) for each in results)
    report.faults = [
        *_faults_of_results(results, follower.seen, expected),
        *_faults_of_summary(record, report.verdicts, receiver.received),
    ]


def _lines(plan: Plan, chance: random.Random) -> list[tuple[str, str]]:
    """Return (source, expected verdict) of each line."""
    slow = [*honest(plan.honest), *raising(plan.raising), *broken(plan.broken)]
    repeated = [chance.choice(slow) for _ in range((plan.lines - len(slow)) // 3)]
    instant = instantly_wrong(plan.lines - len(slow) - len(repeated))
    lines = [*slow, *repeated, *instant]
    chance.shuffle(lines)
    return lines


def _kill_all(
    service: Service, plan: Plan, chance: random.Random, report: Report, begun: float, ended: threading.Event
) -> None:
    # Ten thousand lines take some seconds to come in.
    pause = chance.uniform(0.2, 0.6) * plan.lines / 5000
    for role in plan.kills:
        if ended.wait(pause):
            return
        at_s = time.monotonic() - begun
        report.kills.append(kill := Kill(role, at_s, 0.0))
        kill.back_s = service.kill(role)
        pause = chance.uniform(0.3, 1.7) * plan.every_s


def _faults_of_results(
    results: Sequence[Mapping[str, Any]], seen: Sequence[tuple[int, int]], expected: Mapping[int, tuple[str, str]]
) -> Iterator[str]:
    times = Counter(each["line"] for each in results)
    missing = sorted(set(expected) - set(times))
    if missing:
        yield f"{len(missing)} lines have no result, such as line {missing[0]}"
    repeated = sorted(line for line, count in times.items() if count > 1)
    if repeated:
        yield f"{len(repeated)} lines have several results, such as line {repeated[0]}"
    if [each["cursor"] for each in results] != list(range(1, len(results) + 1)):
        yield "the order of completion has a gap or a repetition"
    if list(seen) != [(each["cursor"], each["line"]) for each in results]:
        yield f"a reader that followed saw {len(seen)} results, and others than are there now"
    for each in results:
        line, record = each["line"], each["submission"]
        wanted = expected[line][1] if line in expected else "no result"
        if record["verdict"] != wanted:
            yield f"line {line} is {record['verdict']} ({record['status']}: {record['message']}), and not {wanted}"


def _faults_of_summary(
    record: Mapping[str, Any], verdicts: Mapping[str, int], received: Sequence[tuple[bool, Mapping[str, Any]]]
) -> Iterator[str]:
    if record["verdicts"] != verdicts:
        yield f"the batch counts {record['verdicts']}, its results are {dict(verdicts)}"
    if not received:
        yield "nobody was told of the end"
    for signed, told in received:
        if not signed:
            yield "the webhook's signature is wrong"
        if told["summary"] != record["summary"]:
            yield "the webhook's summary is not that of the batch"


def _resident_mib(pid: int) -> float:
    with contextlib.suppress(OSError, ValueError):
        return resident_bytes(pid) / 2**20
    return 0.0


def _print(report: Report) -> None:
    lines, slow = report.plan.lines, report.plan.honest + report.plan.raising + report.plan.broken
    took = report.graded_s - report.accepted_s
    print(f"lines               {lines:>8}   of which {slow} distinct ones need processes")
    print(f"accepted            {report.accepted_s:>8.1f} s, {lines / report.accepted_s:.0f} lines/s, kills included")
    print(f"all over            {report.graded_s:>8.1f} s, {lines / report.graded_s:.1f} results/s")
    print(
        f"evaluated           {slow:>8}   in {took:.0f} s after that, {60 * slow / took:.1f} a minute, kills included"
    )
    print(f"attempts            {report.attempts:>8}   of {slow} submissions that a worker takes up")
    print(f"verdicts            {', '.join(f'{count} {name}' for name, count in sorted(report.verdicts.items()))}")
    print(f"\n{'killed':<12}{'at s':>8}{'back after s':>15}{'next result after s':>22}")
    for kill in report.kills:
        following = "" if kill.next_result_s is None else f"{kill.next_result_s:.1f}"
        print(f"{kill.role:<12}{kill.at_s:>8.1f}{kill.back_s:>15.1f}{following:>22}")
    slices = [report.graded_s * number / _SLICES for number in range(1, _SLICES + 1)]
    print(f"\n{'peak RSS, MiB, up to s':<24}" + "".join(f"{end:>8.0f}" for end in slices))
    for role in _ROLES:
        held = [(at, found.get(role, 0.0)) for at, found in report.memory_mib]
        peaks = [
            max((mib for at, mib in held if end - report.graded_s / _SLICES <= at < end), default=0.0) for end in slices
        ]
        print(f"{role:<24}" + "".join(f"{peak:>8.0f}" for peak in peaks))
    print()
    print("\n".join(report.faults[:20]) or "nothing is lost, nothing is there twice, and all agree")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, default=Plan.lines)
    parser.add_argument("--honest", type=int, default=Plan.honest, help="distinct candidates that pass")
    parser.add_argument("--seed", type=int, default=Plan.seed)
    parser.add_argument("--no-kills", action="store_true", help="only for the rates")
    return parser.parse_args()


def main() -> int:
    arguments = _arguments()
    plan = Plan(arguments.lines, arguments.honest, seed=arguments.seed)
    if arguments.no_kills:
        plan = Plan(arguments.lines, arguments.honest, seed=arguments.seed, kills=())
    with tempfile.TemporaryDirectory(prefix="kerneljudge-benchmark-") as folder:
        report = run(plan, Path(folder))
    _print(report)
    return 1 if report.faults else 0


if __name__ == "__main__":
    sys.exit(main())
