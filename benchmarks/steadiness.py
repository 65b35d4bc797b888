"""The repeatability and the resolution of our speedups: ``python -m benchmarks.steadiness --device cuda:0``.

It prints three tables, from one engine, each evaluation in a shuffled order with others between:

- *steadiness*: ``--rounds`` evaluations of each of six candidates, and the coefficient of variation of their speedups.
  The same is done for the plain way, in turn with ours. It uses CUDA events or a clock, and the mean of 100 calls each
  of candidate and reference, one after the other. The plain way is measured twice. Once, each evaluation has a process
  of its own, as with ours and with evaluators in the field. Then one warm process keeps every model where it is.
  Evaluations of different candidates could not share such a process.
- *identical*: the share of intervals that contain 1, for a candidate that is the reference itself.
- *slowdown*: the share of planted slowdowns of 1, 2 and 5 % that are detected: the interval lies below 1.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Final

from evaluator.candidates.candidate import Candidate, parse_candidate
from evaluator.config import EvalConfig, SamplingPlan
from evaluator.engine import Engine
from evaluator.evaluation import Evaluation
from evaluator.interpreter import python_command, python_environment
from evaluator.problems.loading import load_problems
from evaluator.problems.problem import Problem

_PROBLEMS: Final = Path(__file__).parent.parent / "reference_models"
_SLOWDOWNS: Final = (0.01, 0.02, 0.05)
_PLAIN_WAYS: Final = ("fresh", "warm")
_CLOCK_HZ: Final = 1.98e9
"""The clock of an H200 under load. It converts the cycles of a planted slowdown to seconds."""

_IDENTICAL: Final = "from model import Model\n\n\nclass ModelNew(Model):\n    pass\n"
_CLAMP: Final = """import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        with torch.no_grad():
            return x.clamp(min=0)
"""
_IN_PLACE: Final = """import torch
from model import Model


class ModelNew(Model):
    def forward(self, x):
        with torch.no_grad():
            return self.linear(x).relu_().div_(self.divisor)
"""
_SLOWED_CUDA: Final = """import torch
from model import Model


class ModelNew(Model):
    def forward(self, x):
        with torch.no_grad():
            y = super().forward(x)
            torch.cuda._sleep({cycles})
            return y
"""
_SLOWED_CPU: Final = """import time
import torch
from model import Model


class ModelNew(Model):
    def forward(self, x):
        with torch.no_grad():
            begin = time.perf_counter()
            y = super().forward(x)
            while time.perf_counter() < begin + (1 + {share}) * {seconds}:
                pass
            return y
"""

_PLAIN: Final = """
import json, os, sys, time, traceback, types, torch
device, fresh, calls = sys.argv[1], sys.argv[2] == "fresh", 100
cuda = device.startswith("cuda")
known = {}
def load(name, source):
    module = types.ModuleType(name); sys.modules[name] = module
    exec(compile(source, name, "exec"), module.__dict__)
    return module
def mean_ms(model, inputs):
    with torch.no_grad():
        for _ in range(5):
            model(*inputs)
        if not cuda:
            begin = time.perf_counter()
            for _ in range(calls):
                model(*inputs)
            return 1000 * (time.perf_counter() - begin) / calls
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize(); begin.record()
        for _ in range(calls):
            model(*inputs)
        end.record(); torch.cuda.synchronize()
        return begin.elapsed_time(end) / calls
def speedup(message):
    if message["name"] not in known:
        model = load("model", message["reference"])
        candidate = load("candidate", message["candidate"])
        known[message["name"]] = (
            candidate.ModelNew(*model.get_init_inputs()).to(device),
            model.Model(*model.get_init_inputs()).to(device),
            model,
        )
    ours, theirs, model = known[message["name"]]
    with torch.device(device):
        inputs = model.get_inputs()
    ours_ms = mean_ms(ours, inputs)
    return mean_ms(theirs, inputs) / ours_ms
for line in sys.stdin:
    # CUDA is untouched in a process that others are forked from.
    child = os.fork() if fresh else 0
    if child:
        if os.waitpid(child, 0)[1]:
            sys.exit(1)
        continue
    status = 1
    try:
        print(speedup(json.loads(line)), flush=True)
        status = 0
    finally:
        if fresh:
            if status:
                traceback.print_exc()
            os._exit(status)
"""


@dataclass(frozen=True)
class Subject:
    """A candidate on a problem of a size of its own."""

    name: str
    problem: Problem
    source: str
    character: str

    @property
    def candidate(self) -> Candidate:
        candidate = parse_candidate(code=self.source)
        assert isinstance(candidate, Candidate)
        return candidate


def subjects(kind: str) -> list[Subject]:
    """Return six candidates, from about 20 µs to 5 ms on an H200, or as many small ones for a CPU."""
    problems = load_problems(_PROBLEMS)

    def sized(name: str, **sizes: int) -> Problem:
        return replace(problems[name], sizes={"full": sizes})

    def relu(elements: int) -> Problem:
        return sized("relu", batch_size=1024, dim=elements // 1024)

    def linear(rows: int, features: int) -> Problem:
        return sized("linear_relu_divide", batch_size=rows, in_features=features, out_features=features)

    if kind == "cpu":
        return [
            Subject("clamp 64 K", relu(2**16), _CLAMP, "launch-bound"),
            Subject("in place 32 x 64", linear(32, 64), _IN_PLACE, "launch-bound"),
            Subject("clamp 1 M", relu(2**20), _CLAMP, "memory-bound"),
            Subject("clamp 4 M", relu(2**22), _CLAMP, "memory-bound"),
            Subject("in place 64 x 512", linear(64, 512), _IN_PLACE, "compute-bound"),
            Subject("in place 128 x 1024", linear(128, 1024), _IN_PLACE, "compute-bound"),
        ]
    return [
        Subject("in place 64 x 256", linear(64, 256), _IN_PLACE, "launch-bound"),
        Subject("clamp 8 M", relu(2**23), _CLAMP, "memory-bound"),
        Subject("clamp 64 M", relu(2**26), _CLAMP, "memory-bound"),
        Subject("in place 1024 x 3840", linear(1024, 3840), _IN_PLACE, "compute-bound"),
        Subject("in place 1024 x 5120", linear(1024, 5120), _IN_PLACE, "compute-bound"),
        Subject("in place 2048 x 8192", linear(2048, 8192), _IN_PLACE, "compute-bound"),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:N")
    parser.add_argument("--rounds", type=int, default=20, help="evaluations of each candidate")
    parser.add_argument("--budget-s", type=float, default=3600.0, help="start no further evaluation after this time")
    parser.add_argument("--seed", type=int, default=1, help="of the order")
    parser.add_argument("--json", type=Path, help="write every figure here")
    options = parser.parse_args()
    kind = options.device.partition(":")[0]
    tested = subjects(kind)
    middle = tested[4]
    order: list[tuple[str, Subject]] = [("steadiness", each) for each in tested for _ in range(options.rounds)]
    identical = replace(middle, name="identical", source=_IDENTICAL)
    order += [("identical", identical)] * options.rounds
    random.Random(options.seed).shuffle(order)  # noqa: S311 - an order, no secret
    plain = {way: _start_plain(options.device, way) for way in _PLAIN_WAYS}
    config = EvalConfig(device=options.device, size="full", sampling=SamplingPlan(warm_samples=0))
    found: dict[str, list[Evaluation]] = defaultdict(list)
    plain_found: dict[str, dict[str, list[float]]] = {way: defaultdict(list) for way in _PLAIN_WAYS}
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, Engine(device=options.device, cache_dir=Path(folder)) as engine:
        for number, (table, subject) in enumerate(order, 1):
            found[subject.name].append(_evaluate(engine, subject, config))
            if table == "steadiness":
                for way, process in plain.items():
                    plain_found[way][subject.name].append(_ask_plain(process, subject))
            print(f"[{number}/{len(order)}] {subject.name}, {time.monotonic() - begin:.0f} s", file=sys.stderr)
            if time.monotonic() - begin > options.budget_s:
                print(f"out of time after {number} of {len(order)} evaluations")
                break
        known_ms = [_latency(each) for each in _passed(found["identical"])]
        for share in _SLOWDOWNS if known_ms else ():
            slowed = replace(middle, name=f"{share:.0%} slower", source=_slowed(kind, share, fmean(known_ms)))
            for _ in range(max(1, options.rounds // 4)):
                found[slowed.name].append(_evaluate(engine, slowed, config))
    for process in plain.values():
        assert process.stdin is not None
        process.stdin.close()
        process.wait()
    _print_steadiness(tested, found, plain_found)
    _print_coverage(found)
    if options.json:
        options.json.write_text(
            json.dumps({"ours": {k: [_figures(e) for e in v] for k, v in found.items()}, "plain": plain_found})
        )


def _passed(evaluations: list[Evaluation]) -> list[Evaluation]:
    return [evaluation for evaluation in evaluations if evaluation.passed]


def _figures(evaluation: Evaluation) -> dict[str, object]:
    return {
        "speedup": evaluation.speedup,
        "interval": evaluation.speedup_interval and asdict(evaluation.speedup_interval),
        "speedup_training": evaluation.speedup_training,
        "seconds": dict(evaluation.stage_s),
        "notes": evaluation.notes,
        "tracks": evaluation.details.get("tracks"),
    }


def _evaluate(engine: Engine, subject: Subject, config: EvalConfig) -> Evaluation:
    evaluation = engine.evaluate(subject.problem, subject.candidate, config)
    engine.start_ahead()
    if not evaluation.passed:
        print(f"NOT PASSED: {subject.name}: {evaluation.verdict}: {evaluation.message}", flush=True)
    return evaluation


def _latency(evaluation: Evaluation) -> float:
    assert evaluation.latency_ms is not None
    return evaluation.latency_ms.baseline


def _slowed(kind: str, share: float, baseline_ms: float) -> str:
    seconds = baseline_ms / 1000
    if kind == "cpu":
        return _SLOWED_CPU.format(share=share, seconds=seconds)
    return _SLOWED_CUDA.format(cycles=round(share * seconds * _CLOCK_HZ))


def _start_plain(device: str, way: str) -> subprocess.Popen[str]:
    command, environment = python_command("-c", _PLAIN, device, way), python_environment(os.environ)
    return subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def _ask_plain(plain: subprocess.Popen[str], subject: Subject) -> float:
    assert plain.stdin is not None
    assert plain.stdout is not None
    question = {
        "name": subject.name,
        "reference": subject.problem.sized_source("full"),
        "candidate": subject.source,
    }
    plain.stdin.write(json.dumps(question) + "\n")
    plain.stdin.flush()
    return float(plain.stdout.readline())


def _variation(values: list[float]) -> float:
    return 100 * stdev(values) / fmean(values) if len(values) > 1 else 0.0


def _print_steadiness(
    tested: list[Subject], found: dict[str, list[Evaluation]], plain: dict[str, dict[str, list[float]]]
) -> None:
    print("coefficients of variation of the speedup: ours, the plain way in a process each, and in one warm process")
    print(
        f"{'candidate':<22} {'':<14} {'ms':>8} {'speedup':>8} {'ours':>8} {'plain':>9} {'ratio':>6} {'warm':>9} "
        f"{'pairs':>6}"
    )
    for subject in tested:
        evaluations = _passed(found[subject.name])
        if not evaluations:
            continue
        ours = [each.speedup for each in evaluations if each.speedup is not None]
        pairs = fmean(len(each.samples["inference"].order) for each in evaluations)
        mine = _variation(ours)
        fresh, warm = (_variation(plain[way][subject.name]) for way in _PLAIN_WAYS)
        ratio = fresh / mine if mine else float("inf")
        print(
            f"{subject.name:<22} {subject.character:<14} {fmean(map(_latency, evaluations)):>8.4f} {fmean(ours):>8.4f} "
            f"{mine:>6.2f} % {fresh:>7.2f} % {ratio:>6.1f} {warm:>7.2f} % {pairs:>6.0f}"
        )


def _print_coverage(found: dict[str, list[Evaluation]]) -> None:
    print()
    for name, graded in found.items():
        if name != "identical" and not name.endswith("slower"):
            continue
        evaluations = _passed(graded)
        intervals = {
            "inference": [(each.speedup, each.speedup_interval) for each in evaluations],
            "training": [(each.speedup_training, each.speedup_training_interval) for each in evaluations],
        }
        for track, figures in intervals.items():
            known = [(value, interval) for value, interval in figures if value is not None and interval is not None]
            if known:
                inside = sum(interval.low <= 1.0 <= interval.high for _, interval in known)
                below = sum(interval.high < 1.0 for _, interval in known)
                speedups = [value for value, _ in known]
                print(
                    f"{name:<12} {track:<10} {len(known):>3} evaluations: the interval contains 1 in {inside}, is "
                    f"below it in {below}; speedups {min(speedups):.4f} to {max(speedups):.4f}"
                )


if __name__ == "__main__":
    main()
