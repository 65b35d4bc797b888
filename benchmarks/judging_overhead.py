"""What judging costs beyond calling the models: ``python -m benchmarks.judging_overhead --device cuda:0``.

An evaluation by the engine (sandbox, fresh inputs, fingerprints, stopping, verification) side by side with a
bare loop in one warm process, which makes as many calls of candidate and reference on fresh inputs, compares
each against float64 and flushes the cache, and trusts everything. Prints both times, their difference and
their ratio, round by round.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from evaluator.candidate import Candidate
from evaluator.config import EvalConfig, SamplingPlan
from evaluator.engine import Engine
from evaluator.problem import load_problems
from tests.corpus import load_case

_PROBLEMS = Path(__file__).parent.parent / "reference_models"
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
    parser.add_argument("--size", default="smoke", help="one of the problem's sizes")
    parser.add_argument("--case", default="linear_honest_plain", help="an honest case of the corpus without a build")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    case = load_case(options.case)
    problem, candidate = load_problems(_PROBLEMS)[case.problem], case.candidate()
    assert isinstance(candidate, Candidate)
    plan = SamplingPlan(min_samples=10, max_samples=10)
    config = EvalConfig(device=options.device, size=options.size, sampling=plan)
    print(f"{'round':<7}{'engine':>9}{'bare':>9}{'difference':>12}{'ratio':>8}")
    rows: list[tuple[float, float]] = []
    with (
        tempfile.TemporaryDirectory() as folder,
        Engine(device=options.device, cache_dir=Path(folder) / "cache") as engine,
    ):
        (Path(folder) / "model.py").write_text(problem.sized_source(options.size))
        (Path(folder) / "candidate.py").write_text(candidate.source)
        command = [sys.executable, "-c", _BARE, folder, options.device]
        counts = [plan.trials, plan.gradient_trials, plan.min_samples, 3]
        for number in range(options.rounds + 1):
            begin = time.monotonic()
            evaluation = engine.evaluate(problem, candidate, config)
            judged_s = time.monotonic() - begin
            assert evaluation.verdict == "passed", evaluation.message
            done = subprocess.run([*command, *map(str, counts)], capture_output=True, text=True, check=True)
            bare_s = float(done.stdout)
            # The first evaluation of an engine also loads the judge's libraries.
            name = "first" if number == 0 else str(number)
            print(f"{name:<7}{judged_s:>7.2f} s{bare_s:>7.2f} s{judged_s - bare_s:>10.2f} s{judged_s / bare_s:>8.1f}")
            if number:
                rows.append((judged_s, bare_s))
    judged, bare = (median(times) for times in zip(*rows, strict=True))
    print(f"{'median':<7}{judged:>7.2f} s{bare:>7.2f} s{judged - bare:>10.2f} s{judged / bare:>8.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
