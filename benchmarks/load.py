"""Reads and submissions at an even pace: ``python -m benchmarks.load --rate 200``.

It fills a private PostgreSQL with many submissions (``benchmarks.page_data``), and starts Redis and several API
processes on it. It sends the mix of requests of people and programs: records, lists, leaderboards, pages and
submissions. Every request has a due time, whatever became of the requests before it. Its latency counts from that time,
so that a service that falls behind is noticed.

The output has, for each kind and for all, the number of requests, median, 95th and 99th percentile, and errors. It also
has the processor time of the service and of this program. The exit status is 1 where the 95th percentile of all
requests exceeds ``--goal-ms``, or the share of errors ``--goal-errors``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import secrets
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from benchmarks.cluster import Cluster, Shape, running_cluster
from benchmarks.kept_connections import KeptConnections, Request
from benchmarks.page_data import POPULAR, fill
from runtime.settings import Settings

__all__ = ["Plan", "Report", "run"]

_PROBLEMS: Final = Path(__file__).parent.parent / "reference_models"
_CONNECTIONS: Final = 50
"""The number of connections to each of the servers."""
_WRONG: Final = "def forward(x):\n    return x  # {number}\n"
"""A text that is no candidate. Its verdict is known when it comes in, so that no worker's work is measured here."""
_QUEUED: Final = "raise ImportError('{number}')\n\n\nclass ModelNew:\n    pass\n"


@dataclass(frozen=True)
class Plan:
    """The parameters of a run: ``rate`` requests a second for ``seconds``, on a database with ``submissions``."""

    rate: float = 200.0
    seconds: float = 60.0
    apis: int = 2
    submissions: int = 20_000
    seed: int = 1


@dataclass(frozen=True)
class Kind:
    """A kind of request. ``share`` is its number in a hundred requests."""

    name: str
    share: int
    make: Callable[[random.Random, Plan], Request]


@dataclass
class Report:
    """The observations: latencies of successful requests in milliseconds, by kind; ``errors`` of others, by cause."""

    plan: Plan
    latencies_ms: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    errors: dict[str, dict[str, int]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(int)))
    took_s: float = 0.0
    service_cpu_s: float = 0.0
    own_cpu_s: float = 0.0

    @property
    def all_ms(self) -> list[float]:
        return [each for kind in self.latencies_ms.values() for each in kind]

    @property
    def error_count(self) -> int:
        return sum(sum(ways.values()) for ways in self.errors.values())


def _known(chance: random.Random, plan: Plan) -> str:
    """Return an existing submission. Later ones are more likely, because people look at new results."""
    return f"sub_{int(plan.submissions * chance.random() ** 0.3):022d}"


def _get(path: str) -> Request:
    return Request("GET", path)


def _post(code: str) -> Request:
    body = {"problem": "gelu", "device": "cpu", "size": "smoke", "code": code.format(number=secrets.token_hex(8))}
    headers = {"Content-Type": "application/json", "Idempotency-Key": secrets.token_hex(16)}
    return Request("POST", "/api/v1/submissions", headers, json.dumps(body).encode())


KINDS: Final = (
    Kind("POST submission, no candidate", 5, lambda _chance, _plan: _post(_WRONG)),
    Kind("POST submission, queued", 5, lambda _chance, _plan: _post(_QUEUED)),
    Kind("GET submission", 40, lambda chance, plan: _get(f"/api/v1/submissions/{_known(chance, plan)}")),
    Kind("GET submissions", 5, lambda _chance, _plan: _get("/api/v1/submissions?limit=20")),
    Kind("GET leaderboard", 20, lambda _chance, _plan: _get(f"/api/v1/leaderboard?problem={POPULAR}&device=cuda")),
    Kind("GET problem", 5, lambda _chance, _plan: _get(f"/api/v1/problems/{POPULAR}")),
    Kind("page of a problem", 8, lambda _chance, _plan: _get(f"/problems/{POPULAR}")),
    Kind("page of a submission", 7, lambda chance, plan: _get(f"/submissions/{_known(chance, plan)}")),
    Kind("first page", 3, lambda _chance, _plan: _get("/")),
    Kind("overall board", 2, lambda _chance, _plan: _get("/overall")),
)


def run(plan: Plan, folder: Path) -> Report:
    """Run ``plan``, with all files in ``folder``. Call it in the main thread."""
    shape = Shape(apis=plan.apis, builders=0, evaluators=0, settings={"KERNELJUDGE_MAX_QUEUED": "1000000"})
    filled = Settings(data_dir=folder / "data", problems_dir=_PROBLEMS)

    def prepare(url: str) -> None:
        fill(filled.model_copy(update={"database_url": url}), plan.submissions, _PROBLEMS)

    with running_cluster(shape, folder, durable=True, prepare=prepare) as cluster:
        report = Report(plan)
        asyncio.run(_warm_up(cluster))
        before, own = _cpu_s(cluster), time.process_time()
        begun = time.monotonic()
        asyncio.run(_send_all(cluster, report))
        report.took_s = time.monotonic() - begun
        report.service_cpu_s, report.own_cpu_s = _cpu_s(cluster) - before, time.process_time() - own
    return report


async def _warm_up(cluster: Cluster) -> None:
    """Send every kind of request once to every API, so that templates are compiled and connections made."""
    chance = random.Random(0)  # noqa: S311 - what is looked at, no secret
    for url in cluster.urls:
        with closing(KeptConnections(url, _CONNECTIONS)) as connections:
            for kind in KINDS:
                await connections.ask(kind.make(chance, Plan(submissions=1000)))


async def _send_all(cluster: Cluster, report: Report) -> None:
    plan = report.plan
    chance = random.Random(plan.seed)  # noqa: S311 - what is looked at, no secret
    kinds = chance.choices(KINDS, [kind.share for kind in KINDS], k=int(plan.rate * plan.seconds))
    begun = asyncio.get_running_loop().time()
    with ExitStack() as opened:
        servers = [opened.enter_context(closing(KeptConnections(url, _CONNECTIONS))) for url in cluster.urls]
        async with asyncio.TaskGroup() as group:
            for number, kind in enumerate(kinds):
                due = begun + number / plan.rate
                await asyncio.sleep(due - asyncio.get_running_loop().time())
                request = kind.make(chance, plan)
                group.create_task(_send(servers[number % len(servers)], kind.name, request, due, report))


async def _send(server: KeptConnections, name: str, request: Request, due: float, report: Report) -> None:
    try:
        status = await server.ask(request)
    except (OSError, EOFError) as error:
        report.errors[name][type(error).__name__] += 1
        return
    if 200 <= status < 300:
        report.latencies_ms[name].append(1000 * (asyncio.get_running_loop().time() - due))
    else:
        report.errors[name][str(status)] += 1


def _cpu_s(cluster: Cluster) -> float:
    """Return the processor time of the APIs so far, in seconds."""
    ticks = 0
    for process in cluster.processes("api"):
        fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def _print(report: Report) -> None:
    plan = report.plan
    print(f"{plan.rate:.0f} requests a second for {plan.seconds:.0f} s, {plan.apis} API processes, ", end="")
    print(f"{plan.submissions} submissions in the database")
    print(f"\n{'request':<32}{'number':>8}{'p50 ms':>9}{'p95 ms':>9}{'p99 ms':>9}{'errors':>9}")
    for kind in KINDS:
        _print_line(kind.name, report.latencies_ms[kind.name], sum(report.errors[kind.name].values()))
    _print_line("all", report.all_ms, report.error_count)
    number = len(report.all_ms) + report.error_count
    print(f"\nanswered {number / report.took_s:.0f} a second; processors: ", end="")
    each_ms = 1000 * report.service_cpu_s / number
    print(f"APIs {report.service_cpu_s / report.took_s:.2f}, {each_ms:.1f} ms a request; ", end="")
    print(f"this program {report.own_cpu_s / report.took_s:.2f}")
    for name, ways in report.errors.items():
        for how, count in ways.items():
            print(f"{name}: {count} times {how}")


def _print_line(name: str, latencies: list[float], errors: int) -> None:
    p50, p95, p99 = (_percentile(latencies, share) for share in (50, 95, 99))
    print(f"{name:<32}{len(latencies) + errors:>8}{p50:>9.1f}{p95:>9.1f}{p99:>9.1f}{errors:>9}")


def _percentile(values: list[float], share: int) -> float:
    return statistics.quantiles(values, n=100, method="inclusive")[share - 1] if len(values) > 1 else float("nan")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=float, default=Plan.rate)
    parser.add_argument("--seconds", type=float, default=Plan.seconds)
    parser.add_argument("--apis", type=int, default=Plan.apis)
    parser.add_argument("--submissions", type=int, default=Plan.submissions)
    parser.add_argument("--goal-ms", type=float, default=250.0)
    parser.add_argument("--goal-errors", type=float, default=0.001)
    given = parser.parse_args()
    plan = Plan(given.rate, given.seconds, given.apis, given.submissions)
    with tempfile.TemporaryDirectory(prefix="kerneljudge-load-") as folder:
        report = run(plan, Path(folder))
    _print(report)
    number = len(report.all_ms) + report.error_count
    late = _percentile(report.all_ms, 95) > given.goal_ms
    return int(late or report.error_count / number > given.goal_errors)


if __name__ == "__main__":
    sys.exit(main())
