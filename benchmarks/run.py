"""The parts of an evaluation's time, the repeatability of its speedup, and the time of the plain way for the same.

``python -m benchmarks.run``; the plain way is in ``benchmarks.plain_way``.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.graded_plainly import grade_plainly
from evaluator.candidates.candidate import Candidate, parse_candidate
from evaluator.config import EvalConfig, SamplingPlan
from evaluator.engine import Engine
from evaluator.evaluation import Evaluation
from evaluator.problems.problem import Problem
from tests.corpus import Case, known_problems, load_cases

__all__ = ["main"]

_CASES = (
    "linear_cuda_fused_epilogue",
    "linear_folded_divisor",
    "linear_honest_cpp",
    "linear_honest_plain",
    "linear_transposed_weight",
    "relu_cuda_autograd",
    "relu_cuda_float4",
    "relu_honest_cpp",
    "relu_honest_plain",
)


@dataclass(frozen=True)
class Measurement:
    """One candidate through the engine once.

    Times are in seconds; ``plain_s`` is that of the plain way, once in the same run.
    """

    case: str
    cached: bool
    build_s: float
    evaluate_s: float
    stage_s: dict[str, float]
    verdict: str
    speedup: float | None
    half_width: float | None
    plain_s: float | None


def main(argv: list[str] | None = None) -> int:
    """Measure honest candidates of the corpus twice. Return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.run", description=__doc__)
    parser.add_argument("--device", default="cpu", help="cpu, cuda:0 …")
    parser.add_argument("--size", default="smoke", help="one of the problems' sizes")
    parser.add_argument("--without-plain", action="store_true", help="leave the plain way out")
    parser.add_argument("--json", type=Path, help="write everything to this file as well")
    parser.add_argument("cases", nargs="*", help="cases by name; default: a few honest ones for the device")
    options = parser.parse_args(argv)
    kind = options.device.partition(":")[0]
    config = EvalConfig(device=options.device, size=options.size, sampling=SamplingPlan.usual(kind, options.size))
    cases = [
        case
        for case in load_cases()
        if (case.name in options.cases if options.cases else case.name in _CASES and case.runs_on(config.device_kind))
    ]
    problems = known_problems()
    with (
        tempfile.TemporaryDirectory(prefix="kerneljudge-bench-") as folder,
        Engine(device=options.device, cache_dir=Path(folder)) as engine,
    ):
        environment = dict(engine.environment)
        print(", ".join(f"{name} {value}" for name, value in environment.items() if isinstance(value, str)))
        print(
            f"{'case':<28}{'build':>9}{'cached':>9}{'evaluate':>10}{'plain':>9}{'ratios':>14}{'speedup':>10}{'±':>8}"
            "  repeats within",
            flush=True,
        )
        rows: list[Measurement] = []
        for case in cases:
            problem = problems[case.problem]
            plain = None if options.without_plain else grade_plainly(case, problem, options.device, options.size)
            plain_s = None if plain is None else plain.seconds
            first, second = (_measure(engine, problem, case, config, plain_s) for _ in range(2))
            print(_line(first, second), flush=True)
            rows += [first, second]
    if options.json:
        report = {"environment": environment, "measurements": [asdict(row) for row in rows]}
        options.json.write_text(json.dumps(report, indent=2, default=str))
    return 0 if all(row.verdict == "passed" for row in rows) else 1


def _measure(engine: Engine, problem: Problem, case: Case, config: EvalConfig, plain_s: float | None) -> Measurement:
    candidate = parse_candidate(code=case.source)
    assert isinstance(candidate, Candidate), candidate
    built = engine.build(problem, candidate, config)
    begin = time.monotonic()
    evaluation = built.evaluation or engine.evaluate(problem, candidate, config)
    engine.start_ahead()
    return Measurement(
        case=case.name,
        cached=0 < built.extensions == built.cached,
        build_s=built.seconds,
        evaluate_s=time.monotonic() - begin,
        stage_s=dict(evaluation.stage_s),
        verdict=evaluation.verdict,
        speedup=evaluation.speedup,
        half_width=_half_width(evaluation),
        plain_s=plain_s,
    )


def _half_width(evaluation: Evaluation) -> float | None:
    interval = evaluation.speedup_interval
    if interval is None or evaluation.speedup is None:
        return None
    return (interval.high - interval.low) / 2 / evaluation.speedup


def _line(first: Measurement, second: Measurement) -> str:
    line = f"{first.case:<28}{first.build_s:>7.1f} s{second.build_s:>7.1f} s{first.evaluate_s:>8.1f} s"
    if first.plain_s is None:
        line += f"{'':>9}{'':>14}"
    else:
        ratios = (f"{first.plain_s / (row.build_s + row.evaluate_s):.1f}" for row in (first, second))
        line += f"{first.plain_s:>7.1f} s{', '.join(ratios):>14}"
    if first.speedup is None or second.speedup is None or first.half_width is None:
        return f"{line}  {first.verdict}, then {second.verdict}"
    repeats = abs(second.speedup / first.speedup - 1)
    return f"{line}{first.speedup:>9.2f}x{100 * first.half_width:>6.1f} %  {100 * repeats:.1f} %"


if __name__ == "__main__":
    sys.exit(main())
