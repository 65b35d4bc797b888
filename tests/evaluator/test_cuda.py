"""What must hold on a CUDA device beyond the verdicts of the corpus."""

from __future__ import annotations

import os
import signal
import subprocess
from dataclasses import replace

import pytest

from evaluator.candidates.candidate import Candidate, parse_candidate
from evaluator.config import EvalConfig, Limits, SamplingPlan
from evaluator.devices.health import CudaHealth, device_health
from evaluator.engine import Callbacks, Engine, Progress
from evaluator.errors import DoesNotFit, InfrastructureFault
from evaluator.evaluation import Evaluation, Gradients, Verdict
from evaluator.interpreter import python_command, python_environment
from evaluator.problems.problem import Problem
from evaluator.selftest import self_test
from tests.corpus import load_case

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(900)]

_FULL = EvalConfig(device="cuda", size="full")
_SMOKE = EvalConfig(device="cuda", size="smoke", sampling=SamplingPlan(min_samples=10, max_samples=10, warm_samples=0))


def _evaluate(name: str, engine: Engine, problems: dict[str, Problem], config: EvalConfig) -> Evaluation:
    case = load_case(name)
    candidate = parse_candidate(code=case.source)
    assert isinstance(candidate, Candidate)
    return engine.evaluate(problems[case.problem], candidate, config)


def test_relu_of_6_gib_is_judged_with_gradients_within_56_gib_beside_the_contexts(
    cuda_engine: Engine, problems: dict[str, Problem]
) -> None:
    config = replace(_FULL, limits=Limits(device_memory_bytes=56 * 2**30))
    evaluation = _evaluate("relu_honest_plain", cuda_engine, problems, config)
    assert evaluation.verdict is Verdict.PASSED, evaluation.message
    assert evaluation.gradients is Gradients.MATCH
    assert evaluation.peak_memory_bytes is not None
    # How large contexts are, and how many wait, is not the evaluation's doing.
    taken_bytes = evaluation.peak_memory_bytes - evaluation.details["memory_before_bytes"]
    assert 24 * 2**30 < taken_bytes <= 56 * 2**30


def test_the_reference_against_itself_is_no_faster(cuda_engine: Engine, problems: dict[str, Problem]) -> None:
    evaluation = _evaluate("linear_honest_plain", cuda_engine, problems, _FULL)
    assert evaluation.verdict is Verdict.PASSED, evaluation.message
    assert evaluation.speedup == pytest.approx(1.0, abs=0.02)
    assert evaluation.speedup_training == pytest.approx(1.0, abs=0.02)


def test_after_an_illegal_access_the_next_candidate_is_unharmed(
    cuda_engine: Engine, problems: dict[str, Problem]
) -> None:
    before = _evaluate("linear_honest_plain", cuda_engine, problems, _FULL)
    for _ in range(2):
        broken = _evaluate("relu_cuda_float4_overrun", cuda_engine, problems, _FULL)
        assert broken.verdict is Verdict.RUNTIME_ERROR
        assert broken.details["device_fault"] == "illegal memory access"
        after = _evaluate("linear_honest_plain", cuda_engine, problems, _FULL)
        assert after.verdict is Verdict.PASSED
        assert before.latency_ms is not None
        assert after.latency_ms is not None
        assert after.latency_ms.candidate == pytest.approx(before.latency_ms.candidate, rel=0.1)


def _kept(engine: Engine) -> int | None:
    return engine.process_ids.get("kept baseline")


@pytest.mark.parametrize("case", ["linear_honest_plain", "relu_honest_plain"])
def test_a_baseline_that_is_kept_is_measured_as_a_new_one_is(
    case: str, cuda_engine: Engine, problems: dict[str, Problem], *, has_room: bool
) -> None:
    first = _evaluate(case, cuda_engine, problems, _FULL)
    assert first.verdict is Verdict.PASSED, first.message
    kept = _kept(cuda_engine)
    assert kept is not None or (case == "relu_honest_plain" and not has_room)
    used = []
    for _ in range(3):
        again = _evaluate(case, cuda_engine, problems, _FULL)
        assert again.verdict is Verdict.PASSED, again.message
        if kept is not None and not any("evaluated twice" in note for note in again.notes):
            assert _kept(cuda_engine) == kept
        kept = _kept(cuda_engine)
        assert again.gradients is Gradients.MATCH
        assert again.speedup == pytest.approx(1.0, abs=0.02)
        assert again.speedup_training == pytest.approx(1.0, abs=0.02)
        assert first.latency_ms is not None
        assert again.latency_ms is not None
        assert again.latency_ms.baseline == pytest.approx(first.latency_ms.baseline, rel=0.05)
        used.append(again.details["memory_before_bytes"])
    assert max(used) - min(used) < 2**28, "an evaluation leaves memory behind"


def test_what_is_wrong_is_so_beside_a_baseline_that_is_kept_and_a_fault_is_the_end_of_it(
    cuda_engine: Engine, problems: dict[str, Problem]
) -> None:
    assert _evaluate("relu_honest_plain", cuda_engine, problems, _SMOKE).verdict is Verdict.PASSED
    kept = _kept(cuda_engine)
    assert kept is not None
    assert _evaluate("relu_leaky", cuda_engine, problems, _SMOKE).verdict is Verdict.WRONG_OUTPUT
    assert _kept(cuda_engine) == kept
    faulted = _evaluate("bomb_cuda_illegal_address", cuda_engine, problems, _SMOKE)
    assert faulted.verdict is Verdict.RUNTIME_ERROR, faulted.message
    assert _kept(cuda_engine) is None
    assert _evaluate("relu_honest_plain", cuda_engine, problems, _SMOKE).verdict is Verdict.PASSED


def test_a_size_above_the_limit_is_refused_with_the_figures(cuda_engine: Engine, problems: dict[str, Problem]) -> None:
    with pytest.raises(DoesNotFit, match=r"needs [45]\d\.\d GiB .* 20\.0 GiB free"):
        _evaluate(
            "relu_honest_plain",
            cuda_engine,
            problems,
            EvalConfig(device="cuda", size="full", limits=Limits(device_memory_bytes=20 * 2**30)),
        )


@pytest.mark.parametrize("role", ["judge", "forkserver"])
def test_a_process_of_ours_that_dies_is_replaced(role: str, cuda_engine: Engine, problems: dict[str, Problem]) -> None:
    case = load_case("relu_honest_plain")
    candidate = parse_candidate(code=case.source)
    assert isinstance(candidate, Candidate)
    victim = cuda_engine.process_ids[role]

    def kill_when_verifying(progress: Progress) -> None:
        if progress.stage == "verifying":
            os.kill(victim, signal.SIGKILL)

    with pytest.raises(InfrastructureFault):
        cuda_engine.evaluate(problems["relu"], candidate, _SMOKE, Callbacks(kill_when_verifying))
    assert _evaluate("relu_honest_plain", cuda_engine, problems, _SMOKE).verdict is Verdict.PASSED


@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
def test_half_precisions_are_judged_too(precision: str, cuda_engine: Engine, problems: dict[str, Problem]) -> None:
    config = EvalConfig(device="cuda", size="full", precision=precision)
    evaluation = _evaluate("linear_honest_plain", cuda_engine, problems, config)
    assert evaluation.verdict is Verdict.PASSED, evaluation.message
    assert evaluation.gradients is Gradients.MATCH


def test_tf32_does_not_pass_for_float32(cuda_engine: Engine, problems: dict[str, Problem]) -> None:
    source = "import torch\ntorch.backends.cuda.matmul.allow_tf32 = True\n" + load_case("linear_honest_plain").source
    candidate = parse_candidate(code=source)
    assert isinstance(candidate, Candidate)
    evaluation = cuda_engine.evaluate(problems["linear_relu_divide"], candidate, _FULL)
    assert evaluation.verdict is Verdict.WRONG_OUTPUT


_CONVOLUTION = """\
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.convolution = nn.Conv2d(64, 64, 3)

    def forward(self, x):
        return torch.relu(self.convolution(x))


def get_inputs():
    return [torch.randn(16, 64, 64, 64)]


def get_init_inputs():
    return []
"""
_CONVOLVES = "import torch\nfrom model import Model\n{before}\n\nclass ModelNew(Model):\n    {forward}\n"
_IN_HALF = """def forward(self, x):
        layer = self.convolution
        y = torch.nn.functional.conv2d(x.bfloat16(), layer.weight.bfloat16(), layer.bias.bfloat16())
        return torch.relu(y.float())"""


@pytest.mark.parametrize(
    ("baseline", "before", "forward", "verdict"),
    [
        ("eager", "", "pass", Verdict.PASSED),
        ("eager", "torch.backends.cudnn.allow_tf32 = False", "pass", Verdict.PASSED),
        ("eager", "", _IN_HALF, Verdict.WRONG_OUTPUT),
        ("ieee", "", "pass", Verdict.PASSED),
        ("ieee", "torch.backends.cudnn.allow_tf32 = True", "pass", Verdict.WRONG_OUTPUT),
    ],
    ids=["as the reference", "without TF32", "bfloat16", "ieee", "ieee, with TF32"],
)
def test_convolutions_may_round_as_the_reference_does(
    baseline: str, before: str, forward: str, verdict: Verdict, cuda_engine: Engine
) -> None:
    problem = Problem(id="convolution", title="", description="", source=_CONVOLUTION, sizes={"full": {}})
    candidate = parse_candidate(code=_CONVOLVES.format(before=before, forward=forward))
    assert isinstance(candidate, Candidate)
    config = replace(_FULL, baseline=baseline)
    evaluation = cuda_engine.evaluate(problem, candidate, config)
    assert evaluation.verdict is verdict, evaluation.message
    said = "may round to TF32" if baseline == "eager" else "begin with TF32 switched off"
    assert any(said in note for note in evaluation.notes)
    if verdict is Verdict.PASSED:
        assert evaluation.gradients is Gradients.MATCH


def test_the_self_test_passes_and_a_candidates_device_fault_is_not_held_against_the_device(
    cuda_engine: Engine, problems: dict[str, Problem]
) -> None:
    health = device_health("cuda")
    try:
        assert isinstance(health, CudaHealth)
        assert self_test(cuda_engine, "cuda").failure == ""
        faulted = _evaluate("bomb_cuda_illegal_address", cuda_engine, problems, _SMOKE)
        assert "device_fault" in faulted.details
        # What else runs on this machine is not ours to judge.
        seen = health.look(cuda_engine.process_ids.values())
        assert seen.events == ()
        assert not [reason for reason in seen.reasons if "ECC" in reason or "NVML" in reason]
        assert self_test(cuda_engine, "cuda").seconds < 10
    finally:
        health.close()


_SLOW_TO_ASK = """
import time

import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        begin = time.perf_counter()
        while time.perf_counter() - begin < 0.0003:
            pass
        return torch.relu(x)
"""


def test_time_on_the_processor_shows_on_the_warm_track(cuda_engine: Engine, problems: dict[str, Problem]) -> None:
    candidate = parse_candidate(code=_SLOW_TO_ASK)
    assert isinstance(candidate, Candidate)
    config = replace(_SMOKE, sampling=SamplingPlan(min_samples=10, max_samples=10, warm_samples=10))
    # A host that is busy for a moment leaves a figure out, but hardly three times.
    for _ in range(3):
        evaluation = cuda_engine.evaluate(problems["relu"], candidate, config)
        assert evaluation.verdict is Verdict.PASSED, evaluation.message
        if evaluation.speedup_warm is not None:
            break
    assert evaluation.speedup_warm is not None, evaluation.notes
    assert evaluation.speedup_warm < 0.5, evaluation.latency_warm_ms


def test_outputs_are_read_in_the_runner_s_memory_before_the_clock(
    cuda_engine: Engine, problems: dict[str, Problem]
) -> None:
    evaluation = _evaluate("relu_honest_plain", cuda_engine, problems, _SMOKE)
    assert evaluation.verdict is Verdict.PASSED, evaluation.message
    assert not any("read the memory of other processes" in note for note in evaluation.notes)


def test_after_handles_of_nothing_the_judge_goes_on(cuda_engine: Engine, problems: dict[str, Problem]) -> None:
    for _ in range(2):
        lied = _evaluate("attack_a_cuda_wild_location", cuda_engine, problems, _SMOKE)
        assert lied.verdict is Verdict.REJECTED, lied.message
        ended = _evaluate("wrong_relu_cuda_ends_with_open_memory", cuda_engine, problems, _SMOKE)
        assert ended.verdict is Verdict.RUNTIME_ERROR, ended.message
        after = _evaluate("relu_honest_plain", cuda_engine, problems, _SMOKE)
        assert after.verdict is Verdict.PASSED, after.message


def test_a_copy_of_the_reference_with_other_strides_is_charged_nothing_for_the_delivery(
    cuda_engine: Engine, problems: dict[str, Problem]
) -> None:
    # At full size, since some 30 µs of noise between the clocks are more than a call at the size of a smoke test takes.
    evaluation = _evaluate("honest_relu_transposed_memory", cuda_engine, problems, replace(_SMOKE, size="full"))
    assert evaluation.verdict is Verdict.PASSED, evaluation.message
    assert evaluation.latency_ms is not None, evaluation.notes
    # Bringing the elements back into order would take as long as the transposition itself, which is most of the call.
    assert evaluation.latency_ms.candidate < 1.3 * _transposed_relu_ms()


def _transposed_relu_ms() -> float:
    """The time of that candidate's kernels on an idle device, without a judge, in a process that ends with it."""
    command = python_command("-c", _TRANSPOSED_RELU)
    done = subprocess.run(command, env=python_environment(os.environ), stdout=subprocess.PIPE, text=True, check=True)
    return float(done.stdout)


_TRANSPOSED_RELU = """
import torch

x = torch.rand(4096, 393216, device="cuda")
times = []
for _ in range(5):
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    torch.relu(x).t().contiguous().t()
    end.record()
    end.synchronize()
    times.append(start.elapsed_time(end))
print(min(times))
"""
