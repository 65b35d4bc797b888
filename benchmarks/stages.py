"""Seconds by stage and step of evaluations on one device: ``python -m benchmarks.stages --device cuda:0 --size full``.

The reference is its own candidate and every track has ten pairs, so that noise decides nothing. The first evaluation of
a problem has a new baseline. Those after it reuse the baseline, where the device allows that.

``--json`` prints one line for each evaluation and nothing else; ``benchmarks.before_and_after`` reads these of two
checkouts. So options and fields of lines keep their names. The exit status is 1 where an evaluation does not pass.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

import evaluator
from evaluator.candidates.candidate import Candidate, parse_candidate
from evaluator.config import EvalConfig, SamplingPlan
from evaluator.engine import Callbacks, Engine
from evaluator.problems.loading import load_problems
from evaluator.problems.problem import Problem

__all__ = ["PROBLEMS", "Taken", "medians"]

PROBLEMS: Final = (
    "relu",
    "linear_relu_divide",
    "softmax",
    "rms_norm",
    "gelu",
    "swiglu_mlp",
    "smooth_l1_loss",
    "gemm_bias_gelu",
)
"""The problems of ``benchmarks.throughput``."""
_SAME: Final = "from model import Model\n\nclass ModelNew(Model):\n    pass\n"
_PAIRS: Final = 10


@dataclass(frozen=True)
class Taken:
    """One evaluation. ``number`` 0 has a new baseline.

    ``stages`` and ``steps`` are seconds by name; a step lasts from its report to the next one. ``calls`` are
    milliseconds by track, side and step of a timed call, where the engine reports them.
    """

    problem: str
    number: int
    verdict: str
    seconds: float
    stages: dict[str, float]
    steps: dict[str, float]
    calls: dict[str, dict[str, dict[str, float]]]


def medians(taken: Sequence[Taken], *, kept: bool) -> dict[str, dict[str, float]]:
    """Return median seconds by problem and stage, including ``all``.

    ``kept`` selects the evaluations with a reused baseline, or else those with a new one.
    """
    rows: dict[str, dict[str, list[float]]] = {}
    for each in taken:
        if (each.number > 0) == kept:
            row = rows.setdefault(each.problem, defaultdict(list))
            row["all"].append(each.seconds)
            for stage, seconds in each.stages.items():
                if stage != "total":
                    row[stage].append(seconds)
    return {problem: {stage: median(values) for stage, values in row.items()} for problem, row in rows.items()}


def _measure(engine: Engine, problem: Problem, candidate: Candidate, config: EvalConfig, number: int) -> Taken:
    reports: list[tuple[float, str]] = []

    def note(step: Any) -> None:
        # Of a track's reports, only the name is the same each time.
        message = step.message.partition(":")[0] if step.stage == "sampling" else step.message
        reports.append((time.monotonic(), f"{step.stage} {message}".strip()))

    begin = time.monotonic()
    evaluation = engine.evaluate(problem, candidate, config, Callbacks(note))
    end = time.monotonic()
    steps: dict[str, float] = defaultdict(float)
    for (at, step), (until, _) in zip(reports, [*reports[1:], (end, "")], strict=True):
        steps[step] += until - at
    tracks = evaluation.details.get("tracks", {})
    calls = {name: track["steps_ms"] for name, track in tracks.items() if "steps_ms" in track}
    return Taken(problem.id, number, str(evaluation.verdict), end - begin, dict(evaluation.stage_s), dict(steps), calls)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.stages", description=__doc__)
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:N")
    parser.add_argument("--size", default="smoke", help="one of the problems' sizes")
    parser.add_argument("--problems", nargs="*", default=list(PROBLEMS))
    parser.add_argument("--times", type=int, default=3, help="evaluations of each problem, one after the other")
    parser.add_argument("--json", action="store_true", help="a line of JSON for each evaluation, and nothing else")
    options = parser.parse_args()
    problems = load_problems(Path(next(iter(evaluator.__path__))).parent / "reference_models")
    candidate = parse_candidate(code=_SAME)
    assert isinstance(candidate, Candidate)
    plan = SamplingPlan(min_samples=_PAIRS, max_samples=_PAIRS)
    config = EvalConfig(device=options.device, size=options.size, sampling=plan)
    taken: list[Taken] = []
    with (
        tempfile.TemporaryDirectory() as cache,
        Engine(device=options.device, cache_dir=Path(cache)) as engine,
    ):
        # The first evaluation of an engine also loads the judge's libraries.
        _measure(engine, problems[options.problems[0]], candidate, config, 0)
        for name in options.problems:
            for number in range(options.times):
                engine.start_ahead()
                taken.append(_measure(engine, problems[name], candidate, config, number))
                if options.json:
                    print(json.dumps(asdict(taken[-1])), flush=True)
    if not options.json:
        for kept in (False, True):
            for problem, row in medians(taken, kept=kept).items():
                words = " ".join(f"{stage} {seconds:.3f}" for stage, seconds in row.items())
                print(f"{problem:<20} {'baseline kept' if kept else 'new baseline':<14} {words}")
        for each in taken[options.times - 1 :: options.times]:
            print(each.problem, " | ".join(f"{step} {1000 * seconds:.0f} ms" for step, seconds in each.steps.items()))
            for track, sides in each.calls.items():
                for side, steps in sides.items():
                    words = " | ".join(f"{step} {milliseconds:.2f}" for step, milliseconds in steps.items())
                    print(f"  a call of the {side}, {track}, in ms: {words}")
    return 0 if all(each.verdict == "passed" for each in taken) else 1


if __name__ == "__main__":
    sys.exit(main())
