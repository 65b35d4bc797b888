"""What the tiers and further shapes cost: ``python -m benchmarks.tiers --device cuda:0 --size full``.

The reference is its own candidate. Each round evaluates every problem once in each way, by turns: the tiers ``full``,
``quick`` and ``check``, and ``full`` with three checked shapes around the size (one more, one less, a prime). One
evaluation of each problem comes before, so that baselines are kept where the device allows that.

It prints median seconds by problem and way, and the ratio of each way to ``full``. The exit status is 1 where an
evaluation does not pass.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Final

import evaluator
from benchmarks.stages import PROBLEMS
from evaluator.candidates.candidate import Candidate, parse_candidate
from evaluator.config import TIERS, EvalConfig, SamplingPlan
from evaluator.engine import Engine
from evaluator.problems.loading import load_problems
from evaluator.problems.problem import Problem
from evaluator.problems.shapes import Varied, neighbours

__all__ = ["WAYS", "rows", "with_shapes"]

WAYS: Final = ("full", "quick", "check", "full, 3 shapes")
"""The ways of an evaluation that are compared. The first is what the others are compared with."""
_SAME: Final = "from model import Model\n\nclass ModelNew(Model):\n    pass\n"
_AROUND: Final = ("one_more", "one_less", "prime")


def with_shapes(problem: Problem, size: str) -> Problem:
    """Return the problem with three checked shapes around ``size``, in which every integer global is another."""
    integers = {name: value for name, value in problem.sizes[size].items() if isinstance(value, int)}
    around = neighbours(integers, dict.fromkeys(integers, Varied()), "checked", _AROUND)
    return replace(problem, shapes={**problem.shapes, size: around})


def rows(seconds: Mapping[str, Mapping[str, float]]) -> Iterator[str]:
    """Yield a line for each problem and one for all together. ``seconds``: by problem and way."""
    yield f"{'':<20}" + "".join(f"{way:>22}" for way in WAYS)
    together = {way: sum(row[way] for row in seconds.values()) for way in WAYS}
    for problem, row in (*seconds.items(), ("together", together)):
        yield f"{problem:<20}" + "".join(f"{row[way]:>13.2f} s {row[way] / row[WAYS[0]]:>6.2f}" for way in WAYS)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tiers", description=__doc__)
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:N")
    parser.add_argument("--size", default="smoke", help="one of the problems' sizes")
    parser.add_argument("--problems", nargs="*", default=list(PROBLEMS))
    parser.add_argument("--rounds", type=int, default=3, help="evaluations of each problem in each way")
    options = parser.parse_args()
    problems = load_problems(Path(next(iter(evaluator.__path__))).parent / "reference_models")
    candidate = parse_candidate(code=_SAME)
    assert isinstance(candidate, Candidate)
    kind = options.device.partition(":")[0]
    plans = {tier: SamplingPlan.usual(kind, options.size, tier) for tier in TIERS}
    taken: dict[str, dict[str, list[float]]] = {name: defaultdict(list) for name in options.problems}
    failed = False
    with tempfile.TemporaryDirectory() as cache, Engine(device=options.device, cache_dir=Path(cache)) as engine:
        for name in options.problems:
            problem = problems[name]
            shaped = with_shapes(problem, options.size)
            for way in (WAYS[0], *WAYS * options.rounds):
                config = EvalConfig(device=options.device, size=options.size, sampling=plans[way.partition(",")[0]])
                engine.start_ahead()
                begin = time.monotonic()
                found = engine.evaluate(shaped if "shapes" in way else problem, candidate, config)
                taken[name][way].append(time.monotonic() - begin)
                if found.verdict != "passed":
                    failed = True
                    print(f"{name}, {way}: {found.verdict}: {found.message}", file=sys.stderr)
            # The first one had the baseline made.
            del taken[name][WAYS[0]][0]
            print(f"{name}: {sum(map(sum, taken[name].values())):.0f} s", file=sys.stderr)
    for line in rows({name: {way: median(times) for way, times in row.items()} for name, row in taken.items()}):
        print(line)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
