"""The rules of measurement: candidates that cheat in ways which an evaluation on a CPU can show."""

from __future__ import annotations

from dataclasses import replace

import pytest

from evaluator.candidates.candidate import Candidate, parse_candidate
from evaluator.config import EvalConfig, Limits, SamplingPlan
from evaluator.engine import Engine
from evaluator.evaluation import Evaluation, Gradients, SpeedupStatus, Verdict
from evaluator.judge.timing.statistics import median_ms
from evaluator.problems.problem import Problem
from tests.settled import settled

_TEN_PAIRS = SamplingPlan(min_samples=10, max_samples=10, warm_samples=0)
_WITH_FIGURES = EvalConfig(device="cpu", size="smoke", sampling=_TEN_PAIRS)
_CONFIG = replace(_WITH_FIGURES, sampling=replace(_TEN_PAIRS, settles=False))
_HONEST = """
import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)
"""


def _evaluate(source: str, engine: Engine, problems: dict[str, Problem], config: EvalConfig = _CONFIG) -> Evaluation:
    candidate = parse_candidate(code=source)
    assert isinstance(candidate, Candidate)
    return engine.evaluate(problems["relu"], candidate, config)


def test_a_backward_that_writes_to_the_gradient_it_is_given_is_rejected(
    cpu_engine: Engine, problems: dict[str, Problem]
) -> None:
    source = """
import torch


class ReLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return torch.relu(x)

    @staticmethod
    def backward(ctx, gradient):
        # With the upstream gradient at zero, zero is the right answer.
        gradient.zero_()
        return gradient


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return ReLU.apply(x)
"""
    evaluation = _evaluate(source, cpu_engine, problems)
    assert evaluation.verdict is Verdict.REJECTED
    assert "the gradient given to backward was changed" in evaluation.message


@pytest.mark.parametrize("claimed_ns", [1_000, 100_000])
def test_a_patched_clock_gains_nothing(claimed_ns: int, cpu_engine: Engine, problems: dict[str, Problem]) -> None:
    source = f"""
import time

import torch

ticks = [0]


def tick():
    ticks[0] += {claimed_ns}
    return ticks[0]


time.perf_counter_ns = tick


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)
"""
    evaluation = _evaluate(source, cpu_engine, problems, _WITH_FIGURES)
    if evaluation.verdict is Verdict.PASSED:
        # A busy machine leaves more in doubt than such a clock says that a call takes.
        assert evaluation.speedup is not None or evaluation.speedup_status is SpeedupStatus.UNSETTLED
        assert (evaluation.speedup or 0.0) < 1.5
    else:
        assert evaluation.verdict is Verdict.REJECTED


def test_a_clock_that_stands_still_is_rejected(cpu_engine: Engine, problems: dict[str, Problem]) -> None:
    source = "import time\ntime.perf_counter_ns = lambda: 7\n" + _HONEST
    evaluation = _evaluate(source, cpu_engine, problems)
    assert evaluation.verdict is Verdict.REJECTED
    assert "took no time" in evaluation.message


def test_a_copy_of_the_reference_is_not_faster_than_it(cpu_engine: Engine, problems: dict[str, Problem]) -> None:
    speedups: list[float] = []
    for _ in range(20):  # a busy machine leaves many of them unsettled
        evaluation = _evaluate(_HONEST, cpu_engine, problems, _WITH_FIGURES)
        assert evaluation.verdict is Verdict.PASSED
        speedups += [] if evaluation.speedup is None else [evaluation.speedup]
        if len(speedups) == 3:
            break
    assert len(speedups) == 3
    assert 0.5 < sorted(speedups)[1] < 2.0


def test_a_slow_candidate_is_passed_with_a_few_samples(cpu_engine: Engine, problems: dict[str, Problem]) -> None:
    # The millisecond or two that a busy machine puts in doubt are nothing to calls as long as these: three pairs are
    # enough, or the ten of a closer look where a pause of the machine's made one necessary, and one for each further
    # look.
    source = _HONEST.replace("return torch", "__import__('time').sleep(0.6)\n        return torch")
    sampling = SamplingPlan(min_samples=10, max_samples=60, warm_samples=0, budget_s=1.0, half_width=0.02)
    config = EvalConfig(device="cpu", size="smoke", sampling=sampling)
    evaluation = settled(lambda: _evaluate(source, cpu_engine, problems, config))
    assert evaluation.verdict is Verdict.PASSED
    assert evaluation.speedup is not None
    assert evaluation.speedup < 0.1
    assert len(evaluation.samples["inference"].order) <= 12


def test_an_evaluation_that_takes_too_long_in_all_is_a_timeout(
    cpu_engine: Engine, problems: dict[str, Problem]
) -> None:
    source = _HONEST.replace("return torch", "__import__('time').sleep(0.5)\n        return torch")
    config = EvalConfig(device="cpu", size="smoke", limits=Limits(total_s=2.0))
    evaluation = _evaluate(source, cpu_engine, problems, config)
    assert evaluation.verdict is Verdict.TIMEOUT
    assert "2 s in all" in evaluation.message


def test_an_import_that_hangs_is_a_timeout_of_the_build_stage(cpu_engine: Engine, problems: dict[str, Problem]) -> None:
    candidate = parse_candidate(code="import time\ntime.sleep(600)\n" + _HONEST)
    assert isinstance(candidate, Candidate)
    config = EvalConfig(device="cpu", size="smoke", limits=Limits(load_s=1.0))
    report = cpu_engine.build(problems["relu"], candidate, config)
    assert report.evaluation is not None
    assert report.evaluation.verdict is Verdict.TIMEOUT


def test_a_flood_of_build_requests_harms_nobody(cpu_engine: Engine, problems: dict[str, Problem]) -> None:
    flood = """
from torch.utils.cpp_extension import load_inline

for _ in range(30):
    try:
        load_inline(name="x" * 6_000_000, cpp_sources=[""])
    except RuntimeError:
        pass
"""
    assert _evaluate(flood + _HONEST, cpu_engine, problems).verdict is Verdict.PASSED
    assert _evaluate(_HONEST, cpu_engine, problems).verdict is Verdict.PASSED


def test_shrinking_the_shared_memory_is_refused_by_the_kernel(cpu_engine: Engine, problems: dict[str, Problem]) -> None:
    shrink = _HONEST.replace(
        "return torch",
        """import os
        for name in os.listdir("/proc/self/fd"):
            try:
                os.ftruncate(int(name), 0)
            except OSError:
                pass
        return torch""",
    )
    # Descriptors are closed once mapped, so this needs a candidate that kept one: closing is taken from it.
    keep = "import os\nos.close = lambda fd: None\n"
    assert _evaluate(keep + shrink, cpu_engine, problems).verdict is Verdict.PASSED
    assert _evaluate(_HONEST, cpu_engine, problems).verdict is Verdict.PASSED


def test_a_runner_that_closes_its_sockets_ends_its_evaluation(cpu_engine: Engine, problems: dict[str, Problem]) -> None:
    source = _HONEST.replace("return torch", "__import__('os').closerange(3, 200)\n        return torch")
    evaluation = _evaluate(source, cpu_engine, problems)
    assert evaluation.verdict is Verdict.RUNTIME_ERROR
    assert _evaluate(_HONEST, cpu_engine, problems).gradients is Gradients.MATCH


def test_processes_of_a_candidate_stand_still_while_the_baseline_is_called(
    cpu_engine: Engine, problems: dict[str, Problem]
) -> None:
    busy = """
import threading


def spin():
    while True:
        pass


for _ in range(4):
    threading.Thread(target=spin, daemon=True).start()
"""
    honest = settled(lambda: _evaluate(_HONEST, cpu_engine, problems, _WITH_FIGURES))
    assert honest.latency_ms is not None
    spinning = _evaluate(busy + _HONEST, cpu_engine, problems, _WITH_FIGURES)
    # Its own threads are in its way, so that it has no figures, or leaves out too much. The samples are there.
    assert spinning.verdict in {Verdict.PASSED, Verdict.REJECTED}
    if spinning.verdict is Verdict.PASSED:
        baseline_ms = median_ms(spinning.samples["inference"].baseline_device_ms)
        assert baseline_ms < 5 * honest.latency_ms.baseline


_MAXIMUM = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.max(x, dim=1).values


rows = 16


def get_inputs():
    return [torch.rand(rows, 65536)]


def get_init_inputs():
    return []
"""
_SORTED = """
import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return x.sort(dim=1).values[:, -1]
"""
_NOTHING_FLOWS_BACK = """
import torch


class Maximum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.shape = x.shape
        return x.max(dim=1).values

    @staticmethod
    def backward(ctx, upstream):
        return torch.zeros(ctx.shape)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return Maximum.apply(x)
"""


@pytest.mark.parametrize(
    ("source", "verdict"), [(_SORTED, Verdict.PASSED), (_NOTHING_FLOWS_BACK, Verdict.WRONG_GRADIENT)]
)
def test_ties_excuse_the_other_side_of_a_tie_and_not_a_gradient_that_is_missing(
    source: str, verdict: Verdict, cpu_engine: Engine
) -> None:
    problem = Problem("maximum", "Maximum", "The largest of each row.", _MAXIMUM, {"full": {}})
    assert _evaluate(source, cpu_engine, {"relu": problem}, replace(_CONFIG, size="full")).verdict is verdict
