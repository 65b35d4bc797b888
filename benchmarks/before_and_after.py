"""Seconds of an evaluation in an older checkout and in this one, by turns: ``python -m benchmarks.before_and_after``.

The argument is the root of the other checkout (``git worktree add ../before COMMIT``). Each round runs
``benchmarks.stages`` of the other checkout and then of this one, each with its own packages, on the same device.

It prints medians by problem and by stage, and the ratio of now to then. The exit status is 1 where a candidate does not
pass, or where the other checkout has no such benchmark.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

from benchmarks import stages
from evaluator.interpreter import DISTRIBUTION_ROOT, python_command, python_environment

__all__ = ["rows"]

_STAGES: Final = ("preparing", "loading", "constructing", "verifying", "sampling", "all")

Medians = Mapping[str, Mapping[str, float]]
"""Seconds by problem and stage."""


def rows(then: Medians, now: Medians) -> Iterator[str]:
    """Yield a line for each problem of both and one for all together: seconds then, now and their ratio, by stage."""
    yield f"{'':<20}" + "".join(f"{stage:>22}" for stage in _STAGES)
    problems = [problem for problem in then if problem in now]
    for problem in (*problems, ""):
        cells = []
        for stage in _STAGES:
            before, after = (
                sum(side[each].get(stage, 0.0) for each in ([problem] if problem else problems)) for side in (then, now)
            )
            ratio = f"{after / before:.2f}" if before else "-"
            cells.append(f"{before:>8.2f}{after:>7.2f}{ratio:>7}")
        yield f"{problem or 'together':<20}" + "".join(cells)


def _run(checkout: Path, arguments: Sequence[str], expected: int) -> list[stages.Taken]:
    """Run ``benchmarks.stages`` of a checkout with its packages, and expect so many evaluations.

    Raises ``SystemExit`` where fewer are made.
    """
    environment = python_environment(os.environ)
    others = [path for path in environment["PYTHONPATH"].split(os.pathsep) if Path(path) != DISTRIBUTION_ROOT]
    environment["PYTHONPATH"] = os.pathsep.join([str(checkout), *others])
    command = python_command(str(checkout / "benchmarks" / "stages.py"), "--json", *arguments)
    done = subprocess.run(command, cwd=checkout, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    taken = [_taken(json.loads(line)) for line in done.stdout.splitlines()]
    if len(taken) < expected:
        raise SystemExit(f"{checkout}: {len(taken)} of {expected} evaluations, then exit status {done.returncode}")
    return taken


def _taken(line: dict[str, Any]) -> stages.Taken:
    """Return a line of ``--json``. Fields that only one of the checkouts has say nothing here."""
    return stages.Taken(**{field.name: line[field.name] for field in fields(stages.Taken) if field.name in line})


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.before_and_after", description=__doc__)
    parser.add_argument("checkout", type=Path, help="the root of the other checkout")
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:N")
    parser.add_argument("--size", default="smoke", help="one of the problems' sizes")
    parser.add_argument("--problems", nargs="*", default=list(stages.PROBLEMS))
    parser.add_argument("--times", type=int, default=3, help="evaluations of each problem, one after the other")
    parser.add_argument("--rounds", type=int, default=3, help="turns of both checkouts")
    options = parser.parse_args()
    other = options.checkout.resolve()
    if not (other / "benchmarks" / "stages.py").is_file():
        parser.error(f"{other} is no checkout of this project, or has no benchmarks/stages.py")
    arguments = ["--device", options.device, "--size", options.size, "--times", str(options.times)]
    arguments += ["--problems", *options.problems]
    expected = options.times * len(options.problems)
    then: list[stages.Taken] = []
    now: list[stages.Taken] = []
    for number in range(options.rounds):
        then += _run(other, arguments, expected)
        now += _run(DISTRIBUTION_ROOT, arguments, expected)
        print(f"[{number + 1}/{options.rounds}] {sum(each.seconds for each in then + now):.0f} s", file=sys.stderr)
    for kept in (False, True):
        print("With a baseline that is kept" if kept else "With a new baseline")
        for line in rows(*(stages.medians(side, kept=kept) for side in (then, now))):
            print(line)
    failed = [each for each in then + now if each.verdict != "passed"]
    for each in failed:
        print(f"{each.problem}: {each.verdict}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
