"""KernelBench's problems through the running service: ``python -m benchmarks.kernelbench CHECKOUT --device cuda``.

It imports the admitted problems of levels 1 to 3, and starts the service. For each problem it hands in five candidates.
They are the reference itself, and the same compiled by ``torch.compile``. Three more fail: one is wrong in every value,
one is wrong in a corner, and one raises. A few problems are one batch. Each verdict is a line of JSON in ``--out``,
which a later run continues.

The output has, by problem and in all, planned and used memory, seconds by stage, and unexpected results. It compares
our eager baseline with the one that KernelBench has published for an H100. For each kind of candidate, it has verdicts
a minute. The exit status is 1 where a verdict is not as expected.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any, Final

from benchmarks.throughput import submitted_batch, usual_devices
from demo.service import running_service
from evaluator.interpreter import python_command, python_environment
from kerneljudge.client import Client
from kerneljudge.errors import RequestRefused
from kerneljudge.records import SubmissionRecord

__all__ = ["KINDS", "Line", "chosen", "sources", "told"]

_PUBLISHED: Final = Path(__file__).parent / "published" / "kernelbench_h100_eager.json"
_WITHOUT_VERDICT: Final = ("failed", "cancelled")
_POLL_S: Final = 0.2
_NEAR: Final = 0.10
"""The share by which our eager baseline may differ from the published one."""
_HEAD: Final = "import torch\nfrom model import Model\n\n\nclass ModelNew(Model):\n"
_CHANGED: Final = """\
    def forward(self, *inputs):
        found = super().forward(*inputs)
        first = found[0] if isinstance(found, (list, tuple)) else found
        changed = {change}
        return [changed, *found[1:]] if isinstance(found, (list, tuple)) else changed
"""
_COMPILED: Final = """\
    def __init__(self, *arguments):
        super().__init__(*arguments)
        self._compiled = torch.compile(super().forward)

    def forward(self, *inputs):
        return self._compiled(*inputs)
"""
_RAISES: Final = """\
    def forward(self, *inputs):
        raise RuntimeError("on purpose")
"""
KINDS: Final = {
    "reference": "passed",
    "compiled": "passed",
    "wrong": "wrong_output",
    "corner": "wrong_output",
    "raises": "runtime_error",
}
"""The candidates for each problem, with their expected verdicts."""


@dataclass(frozen=True)
class Line:
    """The result of one candidate.

    ``seconds`` are those since the result before it, or since its batch was handed in. ``baseline_ms`` is the mean of
    the timed calls of the eager baseline. Bytes are of the device's memory, or of the machine's on a CPU.
    """

    problem: str
    kind: str
    outcome: str
    message: str
    seconds: float
    stage_s: dict[str, float]
    planned_bytes: int | None
    peak_bytes: int | None
    baseline_ms: float | None
    device: str
    size: str

    @property
    def as_expected(self) -> bool:
        return self.outcome == KINDS[self.kind]


def sources() -> dict[str, str]:
    """Return the candidate of each kind. Its text is the same for all problems."""
    wrong = _CHANGED.format(change="first * 1.01 + 0.01 if first.is_floating_point() else first + 1")
    copied = "first.clone(memory_format=torch.contiguous_format)"
    corner = _CHANGED.format(change=f"{copied}\n        changed.view(-1)[-1:] += 1 + changed.abs().max()")
    bodies = {"reference": "    pass\n", "compiled": _COMPILED, "wrong": wrong, "corner": corner, "raises": _RAISES}
    return {kind: _HEAD + body for kind, body in bodies.items()}


def chosen(problems: Sequence[str], sample: int | None, seed: int, shard: str) -> list[str]:
    """Return every ``N``-th problem from the ``K``-th on, for a ``shard`` ``K/N``, in an order by the ``seed``.

    With ``sample``, only that many problems are taken in all.
    """
    order = sorted(problems)
    random.Random(seed).shuffle(order)  # noqa: S311 - an order to repeat, no secret
    first, _, parts = shard.partition("/")
    return order[:sample][int(first) - 1 :: int(parts)]


def main(argv: list[str] | None = None) -> int:
    """Grade the candidates that are not graded yet. Return the exit status."""
    options = _options(argv)
    size = options.size or ("full" if options.device == "cuda" else "smoke")
    problems = _imported(options.checkout, options.into, options.level)
    todo = chosen(problems, options.sample, options.seed, options.shard)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    known = _known(options.out, options.device, size)
    done = {(line.problem, line.kind) for line in known}
    with (
        tempfile.TemporaryDirectory(prefix="kerneljudge-kernelbench-") as folder,
        options.out.open("a", encoding="utf-8") as out,
    ):
        shutil.copytree(options.into, Path(folder) / "data" / "problems")
        with (
            running_service(
                Path(folder), devices=options.serve_devices or usual_devices(options.device), measured=True
            ) as (url, _),
            Client(url) as client,
        ):
            for start in range(0, len(todo), options.together):
                asked = [
                    (problem, kind)
                    for kind in options.kinds
                    for problem in todo[start : start + options.together]
                    if (problem, kind) not in done
                ]
                if not asked:
                    continue
                for line in _graded(client, asked, options.device, size):
                    known.append(line)
                    out.write(json.dumps(asdict(line)) + "\n")
                    out.flush()
                print(f"{min(len(todo), start + options.together)} of {len(todo)} problems", file=sys.stderr)
    print(told(known, _published()))
    return 0 if all(line.as_expected for line in known) else 1


def _known(out: Path, device: str, size: str) -> list[Line]:
    """Return the results of an earlier run on such a device at this size. Those without a verdict are tried again."""
    lines = [Line(**json.loads(line)) for line in out.read_text().splitlines()] if out.exists() else []
    return [
        line for line in lines if (line.device, line.size) == (device, size) and line.outcome not in _WITHOUT_VERDICT
    ]


def _options(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.kernelbench",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("checkout", type=Path, help="a KernelBench checkout")
    parser.add_argument("--into", type=Path, default=Path("build/kernelbench"), help="folder of imported problems")
    parser.add_argument("--level", type=int, action="append", choices=(1, 2, 3), help="may be repeated; default: all")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--serve-devices", help="devices that the service gets, such as cuda:0,cuda:1")
    parser.add_argument("--size", help="default: full on cuda, smoke on cpu")
    parser.add_argument("--kinds", nargs="*", choices=[*KINDS], default=[*KINDS])
    parser.add_argument("--sample", type=int, help="so many problems, drawn at random; default: all")
    parser.add_argument("--seed", type=int, default=1, help="of their order")
    parser.add_argument("--shard", default="1/1", help="K/N: every N-th problem, from the K-th on")
    parser.add_argument("--together", type=int, default=4, help="problems in a batch")
    parser.add_argument("--out", type=Path, default=Path("build/kernelbench.jsonl"))
    return parser.parse_args(argv)


def _imported(checkout: Path, into: Path, levels: Sequence[int] | None) -> list[str]:
    """Return the problems of these levels in the folder, after an import of the missing ones."""
    levels = levels or (1, 2, 3)
    wanted = [each for level in levels for each in ("--level", str(level))]
    command = python_command(
        "-m", "kerneljudge", "problems", "import", str(checkout), "--into", str(into), "--no-vet", *wanted
    )
    ended = subprocess.run(command, env=python_environment(os.environ), stdout=sys.stderr, check=False)
    if ended.returncode not in (0, 1):  # 1: some are refused, which it has said
        sys.exit(ended.returncode)
    return [
        path.parent.name
        for path in into.glob("*/problem.toml")
        if any(path.parent.name.startswith(f"kernelbench_{level}_") for level in levels)
    ]


def _graded(client: Client, asked: Sequence[tuple[str, str]], device: str, size: str) -> Iterator[Line]:
    """Hand in one batch, and yield its results as they come."""
    code = sources()
    header = {"batch": {"name": "kernelbench", "defaults": {"device": device, "size": size}}}
    lines = [{"problem": problem, "label": kind, "code": code[kind]} for problem, kind in asked]
    batch, cursor, before = submitted_batch(client, header, lines)["id"], 0, time.monotonic()
    finished = False
    while not finished:
        time.sleep(_POLL_S)
        finished = client.batch(batch)["finished"] is not None
        for result in client.stream_batch_results(batch, cursor):
            cursor, now = result["cursor"], time.monotonic()
            yield _line(client, result["submission"], now - before)
            before = now


def _line(client: Client, record: SubmissionRecord, seconds: float) -> Line:
    samples = None
    with contextlib.suppress(RequestRefused):  # nothing was timed
        samples = client.samples(str(record["id"])).get("inference")
    return Line(
        problem=record["problem"],
        kind=str(record["label"]),
        outcome=record["verdict"] or record["status"],
        message=record["message"],
        seconds=seconds,
        stage_s=record["stage_s"],
        planned_bytes=record["details"].get("memory_planned_bytes"),
        peak_bytes=record["peak_memory_bytes"],
        baseline_ms=fmean(samples["baseline_device_ms"]) if samples else None,
        device=record["device"],
        size=record["size"],
    )


def _published() -> dict[str, float]:
    """Return KernelBench's own figures for an H100, in milliseconds. The file names their source."""
    figures: dict[str, Any] = json.loads(_PUBLISHED.read_text(encoding="utf-8"))
    return {name: value for name, value in figures.items() if not name.startswith("_")}


def told(lines: Sequence[Line], published: dict[str, float]) -> str:
    """Return the tables."""
    return "\n".join([*_by_problem(lines, published), "", *_by_kind(lines), "", *_beside(lines, published)])


def _by_problem(lines: Iterable[Line], published: dict[str, float]) -> list[str]:
    by_problem: dict[str, list[Line]] = defaultdict(list)
    for line in lines:
        by_problem[line.problem].append(line)
    rows = [f"{'problem':<58}{'planned':>9}{'peak':>8}{'seconds':>9}{'most':>7}{'ours':>10}{'published':>11}"]
    for problem, found in sorted(by_problem.items()):
        planned = max((line.planned_bytes or 0 for line in found), default=0)
        peak = max((line.peak_bytes or 0 for line in found), default=0)
        totals = [line.stage_s.get("total", 0.0) for line in found]
        ours = next((line.baseline_ms for line in found if line.baseline_ms), None)
        rows.append(
            f"{problem[:57]:<58}{planned / 2**30:>9.1f}{peak / 2**30:>8.1f}{sum(totals):>9.1f}{max(totals):>7.1f}"
            f"{'' if ours is None else f'{ours:.3f}':>10}{published.get(problem, float('nan')):>11.3f}"
        )
        rows += [
            f"  NOT AS EXPECTED: {line.kind}: {line.outcome}: {line.message[:300]}"
            for line in found
            if not line.as_expected
        ]
    return rows


def _by_kind(lines: Sequence[Line]) -> list[str]:
    rows = [f"{'kind':<12}{'graded':>8}{'expected':>10}{'a minute':>10}{'mean s':>9}{'median s':>10}{'most s':>9}"]
    for kind in KINDS:
        found = [line for line in lines if line.kind == kind]
        if not found:
            continue
        totals = [line.stage_s.get("total", 0.0) for line in found]
        evaluated = sum(totals)
        rows.append(
            f"{kind:<12}{len(found):>8}{sum(line.as_expected for line in found):>10}"
            f"{60 * len(found) / evaluated if evaluated else float('nan'):>10.1f}"
            f"{fmean(totals):>9.2f}{median(totals):>10.2f}{max(totals):>9.2f}"
        )
    seconds = sum(line.seconds for line in lines)
    rows.append(f"in all: {len(lines)} in {seconds:.0f} s of the service's time" + _rate(len(lines), seconds))
    stages: dict[str, float] = defaultdict(float)
    for line in lines:
        for stage, spent in line.stage_s.items():
            stages[stage] += spent
    rows.append("seconds by stage: " + ", ".join(f"{stage} {spent:.1f}" for stage, spent in stages.items()))
    return rows


def _rate(count: int, seconds: float) -> str:
    return f", {60 * count / seconds:.1f} a minute" if seconds else ""


def _beside(lines: Sequence[Line], published: dict[str, float]) -> list[str]:
    """Return our eager baseline beside the published figures, the largest difference first."""
    ratios = {
        line.problem: line.baseline_ms / published[line.problem]
        for line in lines
        if line.kind == "reference" and line.baseline_ms and line.problem in published
    }
    near = sum(abs(ratio - 1.0) <= _NEAR for ratio in ratios.values())
    rows = [f"eager baseline within {100 * _NEAR:.0f} % of the published one: {near} of {len(ratios)} (H100 alone)"]
    far = sorted(ratios.items(), key=lambda each: -abs(each[1] - 1.0))
    return rows + [f"  {problem}: {ratio:.2f} times" for problem, ratio in far if abs(ratio - 1.0) > _NEAR]


if __name__ == "__main__":
    sys.exit(main())
