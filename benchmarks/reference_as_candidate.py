"""Whether the reference passes as its own candidate, at its own speed: ``python -m benchmarks.reference_as_candidate``.

It evaluates every problem at every precision, many times, on one device. ``--busy`` loops beside it make the machine
noisy. No such candidate is faster or slower than the baseline, so an interval without 1 is wrong. ``unsettled`` is no
figure at all.

Each evaluation is a line of JSON in ``--out``, which a later run continues. ``--shard K/N`` takes every N-th. The exit
status is 1 where one does not pass, or where more than one interval in twenty excludes 1.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from evaluator.candidates.candidate import Candidate, parse_candidate
from evaluator.config import PRECISIONS, EvalConfig, SamplingPlan
from evaluator.engine import Engine
from evaluator.errors import EvaluatorError
from evaluator.evaluation import Evaluation, Interval
from evaluator.interpreter import python_command, python_environment
from evaluator.problems.loading import load_problems

__all__ = ["Run", "excludes_1", "planned", "told"]

_REFERENCE: Final = "from model import Model\n\n\nclass ModelNew(Model):\n    pass\n"
_PROBLEMS: Final = Path(__file__).parent.parent / "reference_models"
_LOOP: Final = "while True: pass"
_MAX_EXCLUDE: Final = 0.05


class Run(NamedTuple):
    """A planned evaluation."""

    problem: str
    precision: str
    repetition: int


def planned(problems: Sequence[str], precisions: Sequence[str], repetitions: int, shard: str = "1/1") -> list[Run]:
    """Return every ``N``-th evaluation from the ``K``-th on, for a shard ``K/N``.

    All problems come once before any comes again, in an order that is random and always the same. Without a random
    order, a third of the shard would have one precision out of three.
    """
    first, _, parts = shard.partition("/")
    everything: list[Run] = []
    for repetition in range(repetitions):
        runs = [Run(problem, precision, repetition) for problem in problems for precision in precisions]
        random.Random(repetition).shuffle(runs)  # noqa: S311 - an order, not a secret
        everything += runs
    return everything[int(first) - 1 :: int(parts)]


def excludes_1(interval: Interval | None) -> bool:
    """Whether an interval says that one side is faster."""
    return interval is not None and not interval.low <= 1.0 <= interval.high


def told(run: Run, evaluation: Evaluation) -> dict[str, Any]:
    """Return the line about one evaluation."""
    tracks = {"inference": evaluation.speedup_interval, "training": evaluation.speedup_training_interval}
    return {
        **run._asdict(),
        "verdict": evaluation.verdict,
        "message": evaluation.message,
        "status": evaluation.speedup_status,
        "status_training": evaluation.speedup_training_status,
        "intervals": {name: [each.low, each.high] for name, each in tracks.items() if each is not None},
        "excludes_1": [name for name, each in tracks.items() if excludes_1(each)],
        "unsettled": evaluation.unsettled,
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.reference_as_candidate", description=__doc__)
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:N")
    parser.add_argument("--size", help="left out: smoke on a CPU, full on a GPU")
    parser.add_argument("--problems", nargs="*", help="left out: all")
    parser.add_argument("--precisions", nargs="*", default=list(PRECISIONS))
    parser.add_argument("--repetitions", type=int, default=20)
    parser.add_argument("--busy", type=int, default=0, help="so many loops beside it")
    parser.add_argument("--shard", default="1/1", help="K/N: every N-th evaluation, from the K-th on")
    parser.add_argument("--out", type=Path, default=Path("build/reference_as_candidate.jsonl"))
    given = parser.parse_args()
    given.out.parent.mkdir(parents=True, exist_ok=True)
    problems = load_problems(_PROBLEMS)
    kind = given.device.partition(":")[0]
    size = given.size or ("smoke" if kind == "cpu" else "full")
    known = [json.loads(line) for line in given.out.read_text().splitlines()] if given.out.exists() else []
    done = {Run(line["problem"], line["precision"], line["repetition"]) for line in known}
    todo = planned(given.problems or sorted(problems), given.precisions, given.repetitions, given.shard)
    candidate = parse_candidate(code=_REFERENCE)
    assert isinstance(candidate, Candidate)
    with (
        _busy(given.busy),
        tempfile.TemporaryDirectory() as cache,
        Engine(device=given.device, cache_dir=Path(cache)) as engine,
        given.out.open("a") as out,
    ):
        for number, run in enumerate(todo, 1):
            if run in done:
                continue
            plan = SamplingPlan.usual(kind, size)
            config = EvalConfig(device=given.device, size=size, precision=run.precision, sampling=plan)
            try:
                line = told(run, engine.evaluate(problems[run.problem], candidate, config))
            except EvaluatorError as error:
                line = {**run._asdict(), "verdict": None, "message": str(error), "excludes_1": [], "unsettled": False}
            known.append(line)
            out.write(json.dumps(line) + "\n")
            out.flush()
            print(f"[{number}/{len(todo)}] {run.problem} {run.precision}: {_in_short(line)}", file=sys.stderr)
    return _summed_up(known)


@contextlib.contextmanager
def _busy(loops: int) -> Iterator[None]:
    """Run ``loops`` processes that do nothing but use a processor."""
    running = [subprocess.Popen(python_command("-c", _LOOP), env=python_environment(os.environ)) for _ in range(loops)]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


def _in_short(line: dict[str, Any]) -> str:
    figures = ", ".join(f"{name} {low:.3f} to {high:.3f}" for name, (low, high) in line.get("intervals", {}).items())
    marks = [*(["unsettled"] if line["unsettled"] else []), *(f"{name} EXCLUDES 1" for name in line["excludes_1"])]
    return " ".join([str(line["verdict"] or line["message"]), figures, *marks])


def _summed_up(lines: Sequence[dict[str, Any]]) -> int:
    passed = [line for line in lines if line["verdict"] == "passed"]
    intervals = sum(len(line["intervals"]) for line in passed)
    wrong = sum(len(line["excludes_1"]) for line in passed)
    unsettled = sum(line["unsettled"] for line in passed)
    print(
        f"{len(passed)} of {len(lines)} passed; {wrong} of {intervals} intervals exclude 1; "
        f"{unsettled} evaluations unsettled"
    )
    for line in lines:
        if line["verdict"] != "passed" or line["excludes_1"]:
            print(f"  {line['problem']} {line['precision']} #{line['repetition']}: {_in_short(line)}")
    return 0 if len(passed) == len(lines) and wrong <= _MAX_EXCLUDE * intervals else 1


if __name__ == "__main__":
    sys.exit(main())
