"""The cost of judging beyond calling the models: ``python -m benchmarks.judging_overhead --device cuda:0``.

It compares an evaluation by the engine (sandbox, fresh inputs, fingerprints, stopping, verification) with a bare loop
in one warm process. The loop makes as many calls of candidate and reference on fresh inputs, compares each against
float64, flushes the cache, and trusts everything.

The candidate is the reference under another name. The output has both times, their difference and their ratio, by
problem, and the median over the problems.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from benchmarks.candidates import cuda
from evaluator.candidates.candidate import Candidate, parse_candidate
from evaluator.config import EvalConfig, SamplingPlan
from evaluator.engine import Engine
from evaluator.interpreter import python_command, python_environment
from evaluator.problems.loading import load_problems

_PROBLEMS = Path(__file__).parent.parent / "reference_models"
_SAME = "from model import Model\n\nclass ModelNew(Model):\n    pass\n"
_BARE = """
import sys, time, torch
folder, device, trials, gradient_trials, samples, warm_ups = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])
sys.path.insert(0, folder)
import model
torch.zeros(1, device=device)
wait = torch.cuda.synchronize if device.startswith("cuda") else lambda: None
flush = torch.zeros(2**25, dtype=torch.int32, device=device)
begin = time.perf_counter()
import candidate
torch.manual_seed(0); ours = candidate.ModelNew(*model.get_init_inputs()).to(device)
torch.manual_seed(0); theirs = model.Model(*model.get_init_inputs()).to(device)
exact = model.Model(*model.get_init_inputs()).to(device).double()
exact.load_state_dict(theirs.state_dict())


def inputs():
    with torch.device(device):
        return [value.to(device) for value in model.get_inputs()]


def forward():
    values = inputs(); flush.add_(1); wait()
    with torch.no_grad():
        got = ours(*values); wait(); theirs(*values); wait()
        torch.allclose(got.double(), exact(*(value.double() for value in values)), atol=1e-4, rtol=1e-4)


def backward():
    values = [value.requires_grad_() for value in inputs()]; flush.add_(1); wait()
    grads = [torch.autograd.grad(m(*values).sum(), values)[0] for m in (ours, theirs)]; wait()
    wanted = torch.autograd.grad(exact(*(value.double() for value in values)).sum(), values)[0]
    torch.allclose(grads[0].double(), wanted.double(), atol=1e-3, rtol=1e-3)


for _ in range(trials + samples + warm_ups):
    forward()
for _ in range(gradient_trials + samples + warm_ups):
    backward()
print(time.perf_counter() - begin)
"""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.judging_overhead", description=__doc__)
    parser.add_argument("--device", default="cpu", help="cpu, cuda:0 …")
    parser.add_argument("--size", default="smoke", help="one of the problems' sizes")
    parser.add_argument("--problem", action="append", help="may be repeated; default: those of benchmarks.throughput")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    problems = load_problems(_PROBLEMS)
    candidate = parse_candidate(code=_SAME)
    assert isinstance(candidate, Candidate)
    plan = SamplingPlan(min_samples=10, max_samples=10)
    config = EvalConfig(device=options.device, size=options.size, sampling=plan)
    counts = [plan.trials, plan.gradient_trials, plan.min_samples, 3]
    print(f"{'problem':<20}{'engine':>9}{'bare':>9}{'difference':>12}{'least':>8}{'most':>8}{'ratio':>8}")
    differences: list[float] = []
    with (
        tempfile.TemporaryDirectory() as folder,
        Engine(device=options.device, cache_dir=Path(folder) / "cache") as engine,
    ):
        # The first evaluation of an engine also loads the judge's libraries.
        engine.evaluate(problems["relu"], candidate, config)
        engine.start_ahead()
        for name in options.problem or cuda.PROBLEMS:
            problem = problems[name]
            (Path(folder) / "model.py").write_text(problem.sized_source(options.size))
            (Path(folder) / "candidate.py").write_text(candidate.source)
            command = python_command("-c", _BARE, folder, options.device, *map(str, counts))
            rows: list[tuple[float, float]] = []
            for _ in range(options.rounds):
                begin = time.monotonic()
                evaluation = engine.evaluate(problem, candidate, config)
                judged_s = time.monotonic() - begin
                assert evaluation.verdict == "passed", evaluation.message
                engine.start_ahead()
                done = subprocess.run(
                    command, env=python_environment(os.environ), capture_output=True, text=True, check=True
                )
                rows.append((judged_s, float(done.stdout)))
            found = [judged_s - bare_s for judged_s, bare_s in rows]
            judged_s, bare_s = (median(times) for times in zip(*rows, strict=True))
            print(
                f"{name:<20}{judged_s:>7.2f} s{bare_s:>7.2f} s{median(found):>10.2f} s"
                f"{min(found):>6.2f} s{max(found):>6.2f} s{judged_s / bare_s:>8.1f}",
                flush=True,
            )
            differences.append(median(found))
    print(f"median over the problems: {median(differences):.2f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
