"""What inputs timed calls have: those on which the reference says something, or none."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from evaluator.candidates.candidate import Candidate, parse_candidate
from evaluator.config import EvalConfig, SamplingPlan
from evaluator.engine import Engine
from evaluator.evaluation import Gradients, Verdict
from evaluator.judge.correctness.reference import Reference
from evaluator.judge.device.cpu import CpuDevice
from evaluator.judge.inputs.drawing import InputSource, Variant
from evaluator.judge.inputs.informative_kinds import UsualProblems, timed_kinds, usual_kinds
from evaluator.problems.problem import Problem
from evaluator.protocol.control_page import CallMode
from tests.corpus import known_problems

_BOTH = [CallMode.FORWARD, CallMode.BACKWARD]


def _kinds(
    problem: Problem, tmp_path: Path, precision: str = "float32", modes: list[CallMode] = _BOTH
) -> dict[CallMode, Variant]:
    device = CpuDevice(tmp_path)
    reference = Reference(problem, "smoke", precision, device)
    reference.construct(1, frozenset(os.sched_getaffinity(0)))
    source = InputSource(reference.get_inputs, device.torch_device, variants=problem.input_domain == "real")
    return timed_kinds(reference, source, None, modes).found


def test_usual_problems_have_mixed_inputs(problems: dict[str, Problem], tmp_path: Path) -> None:
    assert _kinds(problems["relu"], tmp_path) == dict.fromkeys(_BOTH, Variant.MIXED)
    assert _kinds(problems["gelu"], tmp_path, modes=_BOTH[:1]) == {CallMode.FORWARD: Variant.MIXED}


def test_a_logarithm_has_inputs_as_they_are_written(tmp_path: Path) -> None:
    assert _kinds(known_problems()["honest_log_by_two"], tmp_path) == dict.fromkeys(_BOTH, Variant.AS_WRITTEN)


def test_gradients_that_overflow_in_half_precision_have_other_inputs_than_outputs(
    problems: dict[str, Problem], tmp_path: Path
) -> None:
    found = _kinds(problems["rms_norm"], tmp_path, "float16")
    assert found[CallMode.FORWARD] is Variant.MIXED
    assert found[CallMode.BACKWARD] is Variant.SIGNED


def _usual(problem: Problem, tmp_path: Path, precision: str = "float32") -> bool:
    device = CpuDevice(tmp_path)
    reference = Reference(problem, "smoke", precision, device)
    reference.construct(1, frozenset(os.sched_getaffinity(0)))
    source = InputSource(reference.get_inputs, device.torch_device, variants=problem.input_domain == "real")
    found = timed_kinds(reference, source, None, _BOTH)
    assert not found.usual or found.found == usual_kinds(source, _BOTH)
    return found.usual


def test_whether_kinds_are_usual(problems: dict[str, Problem], tmp_path: Path) -> None:
    assert _usual(problems["relu"], tmp_path)
    assert not _usual(known_problems()["honest_log_by_two"], tmp_path)
    assert not _usual(problems["rms_norm"], tmp_path, "float16")
    assert problems["token_embedding"].input_domain != "real"
    assert _usual(problems["token_embedding"], tmp_path), "as written, and there are no others"


def test_an_answer_is_believed_once_several_evaluations_had_it_and_none_another() -> None:
    usual = UsualProblems()
    for _ in range(2):
        usual.note("relu", usual=True)
    assert "relu" not in usual
    usual.note("relu", usual=True)
    assert "relu" in usual
    assert "gelu" not in usual
    usual.note("relu", usual=False)
    for _ in range(10):
        usual.note("relu", usual=True)
    assert "relu" not in usual


def test_where_no_kind_says_enough_nothing_is_timed(problems: dict[str, Problem], tmp_path: Path) -> None:
    assert _kinds(problems["adamw_step"], tmp_path, "float16", [CallMode.FORWARD]) == {}


def test_without_a_kind_for_timed_calls_there_is_no_figure_and_the_record_says_why(
    cpu_engine: Engine, problems: dict[str, Problem]
) -> None:
    problem = problems["adamw_step"]
    candidate = parse_candidate(code=problem.source + "\n\nclass ModelNew(Model):\n    pass\n")
    assert isinstance(candidate, Candidate)
    plan = SamplingPlan(min_samples=3, max_samples=3, warm_samples=0)
    config = EvalConfig(size="smoke", precision="float16", sampling=plan)
    evaluation = cpu_engine.evaluate(problem, candidate, config)
    assert evaluation.verdict is Verdict.PASSED
    assert evaluation.speedup is None
    assert evaluation.details["telling_share"]["output 0"]["as written"] < 0.6
    assert any("no figure" in note for note in evaluation.notes)


@pytest.mark.parametrize("name", ["honest_log_by_two"])
def test_timed_calls_of_a_logarithm_are_verified_and_measured(cpu_engine: Engine, name: str) -> None:
    problem = known_problems()[name]
    candidate = parse_candidate(code=problem.source + "\n\nclass ModelNew(Model):\n    pass\n")
    assert isinstance(candidate, Candidate)
    plan = SamplingPlan(min_samples=3, max_samples=3, warm_samples=0)
    evaluation = cpu_engine.evaluate(problem, candidate, EvalConfig(size="smoke", sampling=plan))
    assert evaluation.verdict is Verdict.PASSED
    assert evaluation.gradients is Gradients.MATCH
    assert evaluation.samples["inference"].candidate_device_ms
    shares = evaluation.details["telling_share"]["the output"]
    assert shares["wide-ranged"] < 0.6
    assert shares["mixed"] < 0.99
    assert "as written" not in shares, "all of it says something, so these are the inputs of timed calls"
