"""Baselines besides the eager reference: compiled, in lower precision, and the comparison that is kept."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from evaluator.candidates.candidate import Candidate
from evaluator.config import BASELINES, IEEE, LOWER_PRECISIONS, EvalConfig, SamplingPlan
from evaluator.engine import Engine
from evaluator.errors import EvaluationCancelled, InfrastructureFault, ProblemError
from evaluator.evaluation import Evaluation, Gradients, Interval, Latency, SampleSeries, Verdict
from evaluator.problems.loading import load_problem
from evaluator.problems.problem import Problem
from evaluator.results.compiled_baselines import CompiledBaselines
from evaluator.runner.variants import as_baseline
from tests.corpus import load_case

_CONFIG = EvalConfig(device="cpu", size="smoke", compare_compiled=True)


def _evaluation(problem: Problem, *, baseline_ms: float = 2.0, speedup: float = 2.0) -> Evaluation:
    return Evaluation(
        verdict=Verdict.PASSED,
        message="",
        problem=problem.id,
        problem_version=problem.version,
        device="cpu",
        size="smoke",
        precision="float32",
        gradients=Gradients.MATCH,
        speedup=speedup,
        speedup_interval=Interval(0.9 * speedup, 1.1 * speedup),
        latency_ms=Latency(baseline_ms / speedup, baseline_ms, 3.0, 3.0),
        samples={
            "inference": SampleSeries((baseline_ms / speedup,), (baseline_ms,), (3.0,), (3.0,), ("candidate first",))
        },
        environment={"device_name": "a processor", "torch": "2.13.0"},
    )


class Measuring:
    """Stands for the engine: the compiled reference takes half of what the eager one takes."""

    def __init__(self, problem: Problem, fault: Exception | None = None) -> None:
        self.problem = problem
        self.fault = fault
        self.configs: list[EvalConfig] = []

    def __call__(self, candidate: Candidate, config: EvalConfig) -> Evaluation:
        assert "class ModelNew(Model)" in candidate.source
        self.configs.append(config)
        if self.fault is not None:
            raise self.fault
        return replace(_evaluation(self.problem, baseline_ms=1.0, speedup=0.5), baseline=config.baseline)


def test_what_is_measured_once_is_kept_until_the_eager_reference_takes_another_time(
    tmp_path: Path, problems: dict[str, Problem]
) -> None:
    problem = problems["relu"]
    measuring = Measuring(problem)
    for _ in range(2):
        found = CompiledBaselines(tmp_path).compare(_evaluation(problem), problem, _CONFIG, measuring)
        assert found.speedup_compiled == 1.0
        assert found.speedup_compiled_interval == Interval(0.9 * 2 * 0.45, pytest.approx(1.1 * 2 * 0.55))
    assert [(config.baseline, config.compare_compiled) for config in measuring.configs] == [("compile", False)]
    slower = _evaluation(problem, baseline_ms=3.0)
    CompiledBaselines(tmp_path).compare(slower, problem, _CONFIG, measuring)
    assert len(measuring.configs) == 2, "50 % slower than when it was measured"


@pytest.mark.parametrize("change", [{"precision": "bfloat16"}, {"size": "full"}])
def test_another_size_or_precision_is_another_baseline(
    change: dict[str, str], tmp_path: Path, problems: dict[str, Problem]
) -> None:
    measuring = Measuring(problems["relu"])
    for config in (_CONFIG, replace(_CONFIG, **change)):
        CompiledBaselines(tmp_path).compare(_evaluation(problems["relu"]), problems["relu"], config, measuring)
    assert len(measuring.configs) == 2


def test_a_reference_that_does_not_compile_is_noted_and_not_tried_each_time(
    tmp_path: Path, problems: dict[str, Problem]
) -> None:
    measuring = Measuring(problems["relu"], ProblemError("graph break"))
    for _ in range(2):
        found = CompiledBaselines(tmp_path).compare(_evaluation(problems["relu"]), problems["relu"], _CONFIG, measuring)
        assert found.speedup_compiled is None
        assert found.notes == ("no comparison with torch.compile: graph break",)
    assert len(measuring.configs) == 1


def test_a_fault_of_ours_costs_the_comparison_alone_and_is_tried_again(
    tmp_path: Path, problems: dict[str, Problem]
) -> None:
    measuring = Measuring(problems["relu"], InfrastructureFault("the judge died"))
    for _ in range(2):
        found = CompiledBaselines(tmp_path).compare(_evaluation(problems["relu"]), problems["relu"], _CONFIG, measuring)
        assert found.speedup == 2.0
        assert "the judge died" in found.notes[0]
    assert len(measuring.configs) == 2


def test_cancelling_is_no_note(tmp_path: Path, problems: dict[str, Problem]) -> None:
    measuring = Measuring(problems["relu"], EvaluationCancelled())
    with pytest.raises(EvaluationCancelled):
        CompiledBaselines(tmp_path).compare(_evaluation(problems["relu"]), problems["relu"], _CONFIG, measuring)


def test_a_file_that_is_not_ours_is_measured_anew(tmp_path: Path, problems: dict[str, Problem]) -> None:
    measuring = Measuring(problems["relu"])
    CompiledBaselines(tmp_path).compare(_evaluation(problems["relu"]), problems["relu"], _CONFIG, measuring)
    for path in tmp_path.iterdir():
        path.write_text(json.dumps({"ratio": 0.1}))
    CompiledBaselines(tmp_path).compare(_evaluation(problems["relu"]), problems["relu"], _CONFIG, measuring)
    assert len(measuring.configs) == 2


def test_lower_precision_is_for_problems_that_allow_it(problems: dict[str, Problem]) -> None:
    allowing = replace(problems["relu"], baselines=("tf32", "bfloat16"))
    assert allowing.version == problems["relu"].version, "no verdict depends on it"
    for name in BASELINES:
        refusal = problems["relu"].refuses_baseline(EvalConfig(baseline=name))
        assert (refusal is None) == (name not in (IEEE, *LOWER_PRECISIONS))
    assert allowing.refuses_baseline(EvalConfig(baseline="bfloat16")) is None
    assert "nothing else computes in TF32" in str(allowing.refuses_baseline(EvalConfig(baseline="tf32")))
    assert allowing.refuses_baseline(EvalConfig(device="cuda", baseline="tf32")) is None
    assert problems["relu"].refuses_baseline(EvalConfig(device="cuda", baseline=IEEE)) is None
    halved = EvalConfig(baseline="bfloat16", precision="float16")
    assert "is for precision float32" in str(allowing.refuses_baseline(halved))
    assert Problem.from_dict(allowing.to_dict()) == allowing


def test_a_problem_says_which_lower_precisions_it_allows(tmp_path: Path, problems: dict[str, Problem]) -> None:
    folder = tmp_path / "relu"
    folder.mkdir()
    (folder / "reference.py").write_text(problems["relu"].source)
    manifest = 'title = "t"\ndescription = "d"\n[sizes.full]\ndim = 8\n[baselines]\nprecisions = ["{}"]\n'
    (folder / "problem.toml").write_text(manifest.format("tf32"))
    assert load_problem(folder).baselines == ("tf32",)
    (folder / "problem.toml").write_text(manifest.format("int8"))
    with pytest.raises(ProblemError, match="a list of tf32, float16, bfloat16"):
        load_problem(folder)


def test_a_baseline_in_half_precision_takes_and_returns_what_the_reference_does() -> None:
    torch.manual_seed(0)
    model = torch.nn.Linear(16, 8)
    x = torch.rand(4, 16)
    exact = model(x).detach()
    half = as_baseline(model, "bfloat16")(x).detach()
    assert half.dtype is torch.float32
    assert 0 < float((half - exact).abs().max()) < 0.05
    assert as_baseline(model, "eager") is model


def test_the_engine_divides_by_the_baseline_that_was_asked_for(
    cpu_engine: Engine, problems: dict[str, Problem]
) -> None:
    problem = replace(problems["linear_relu_divide"], baselines=("bfloat16",))
    candidate = load_case("linear_honest_plain").candidate()
    assert isinstance(candidate, Candidate)
    sampling = SamplingPlan(min_samples=5, max_samples=5, warm_samples=0)
    found = cpu_engine.evaluate(
        problem, candidate, EvalConfig(size="smoke", baseline="bfloat16", require_gradients=False, sampling=sampling)
    )
    assert (found.verdict, found.baseline) == (Verdict.PASSED, "bfloat16"), found.message
    with pytest.raises(ProblemError, match="has no baseline float16"):
        cpu_engine.evaluate(problem, candidate, EvalConfig(size="smoke", baseline="float16"))


@pytest.mark.timeout(600)
def test_the_engine_compares_with_torch_compile(cpu_engine: Engine, problems: dict[str, Problem]) -> None:
    candidate = load_case("relu_honest_plain").candidate()
    assert isinstance(candidate, Candidate)
    sampling = SamplingPlan(min_samples=5, max_samples=5, warm_samples=0)
    found = cpu_engine.evaluate(problems["relu"], candidate, replace(_CONFIG, sampling=sampling))
    assert found.verdict is Verdict.PASSED, found.message
    if found.speedup is None or any("against itself compiled: unsettled" in note for note in found.notes):
        assert found.speedup_compiled is None, "a figure that rests on one that there is not"
        return
    assert found.speedup_compiled is not None, found.notes
    assert found.speedup_compiled_interval is not None
    assert found.speedup_compiled_interval.low <= found.speedup_compiled <= found.speedup_compiled_interval.high
    assert Evaluation.from_dict(found.to_dict()) == found
