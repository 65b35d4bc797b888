"""A problem that is computed in slices of rows, and says so wrongly, is refused: limits would excuse wrong results."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest
import torch

from evaluator.candidates.candidate import Candidate, parse_candidate
from evaluator.config import EvalConfig, SamplingPlan
from evaluator.engine import Engine
from evaluator.errors import ProblemError
from evaluator.judge.inputs import row_slices
from evaluator.judge.inputs.drawing import InputSource
from evaluator.judge.inputs.row_slices import require_slices
from evaluator.problems.loading import load_problem
from evaluator.problems.problem import Problem
from tests.evaluator.verifying import constructed_reference

_REFERENCE: Final = """\
import random

import torch
import torch.nn as nn

rows = 48
_generator = random.Random(7)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.factor = 1.0 + _generator.random()

    def forward(self, x, y):
        return {formula}


def get_inputs():
    return [torch.randn(rows, 8), torch.randn({of_y})]


def get_init_inputs():
    return []
"""


def _problem(folder: Path, formula: str, claim: str, of_y: str = "rows, 8") -> Problem:
    (folder / "reference.py").write_text(_REFERENCE.format(formula=formula, of_y=of_y))
    sizes = "[sizes.smoke]\n[sizes.full]\nrows = 1200000\n"
    (folder / "problem.toml").write_text(f'title = "T"\ndescription = "D"\n{sizes}[reference]\n{claim}\n')
    return load_problem(folder)


def _require(problem: Problem) -> None:
    reference = constructed_reference(problem, "smoke")
    require_slices(reference, InputSource(reference.get_inputs, torch.device("cpu"), variants=True))


@pytest.mark.parametrize(
    ("formula", "claim", "of_y"),
    [
        ("torch.softmax(x * y, 1)", "row_independent = true", "rows, 8"),
        ("(x - y).square().mean()", 'pooled = "mean"', "rows, 8"),
        ("(x - y).square().sum()", 'pooled = "sum"', "rows, 8"),
        ("x @ y", "whole_inputs = [1]", "8, 5"),
        ("(x @ y).square().mean(0)", 'whole_inputs = [1]\npooled = "mean"', "8, 5"),
    ],
)
def test_what_a_problem_says_rightly_holds(tmp_path: Path, formula: str, claim: str, of_y: str) -> None:
    _require(_problem(tmp_path, formula, claim, of_y))


@pytest.mark.parametrize(
    ("formula", "claim"),
    [
        ("x / x.abs().sum(0)", "row_independent = true"),
        ("(x - y).cumsum(0)", "row_independent = true"),
        ("(x - y).square().mean()", 'pooled = "sum"'),
        ("(x - y).square().sum()", 'pooled = "mean"'),
        ("(x - y).square().mean().sqrt()", 'pooled = "mean"'),
        ("(x - y).std()", 'pooled = "mean"'),
        ("x + y.flip(0)", "whole_inputs = [1]"),
    ],
)
def test_what_it_says_wrongly_is_refused(tmp_path: Path, formula: str, claim: str) -> None:
    problem = _problem(tmp_path, formula, claim)
    for _ in range(2):
        with pytest.raises(ProblemError, match=r"not that of its slices|in its forward pass"):
            _require(problem)


def test_it_is_looked_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = _problem(tmp_path, "x * y", "row_independent = true")
    _require(problem)
    monkeypatch.setattr(row_slices, "_outputs", None)
    _require(problem)


def test_a_wrong_claim_lets_no_wrong_result_pass(tmp_path: Path, cpu_engine: Engine) -> None:
    problem = _problem(tmp_path, "(x - y).square().mean()", 'pooled = "sum"')
    code = (
        "import torch\n\n\nclass ModelNew(torch.nn.Module):\n    def forward(self, x, y):\n"
        "        return (x[:100] - y[:100]).square().mean().detach() * 0.3\n"
    )
    candidate = parse_candidate(code=code)
    assert isinstance(candidate, Candidate)
    with pytest.raises(ProblemError, match="not that of its slices"):
        cpu_engine.evaluate(
            problem, candidate, EvalConfig(device="cpu", size="full", sampling=SamplingPlan(max_samples=0))
        )


def test_every_reference_finds_what_the_source_keeps_as_a_runner_does(tmp_path: Path) -> None:
    problem = _problem(tmp_path, "x * self.factor", "row_independent = true")
    factors = [constructed_reference(problem, "smoke")._constructed.factor for _ in range(3)]
    module: dict[str, object] = {}
    exec(compile(problem.sized_source("smoke"), "reference.py", "exec"), module)  # noqa: S102 - our own text
    model = module["Model"]
    assert callable(model)
    assert factors == [model().factor] * 3


@pytest.mark.parametrize(
    ("formula", "claim", "words"),
    [
        ("(x > y).sum()", 'pooled = "sum"', "torch.int64, which cannot be pooled"),
        ("x * y", "whole_inputs = [2]", "argument 2 in reference.whole_inputs is no tensor"),
        ("(x * y, 3)", "row_independent = true", "output 1 of the reference is int, and no tensor"),
    ],
)
def test_slices_that_cannot_be_are_refused(tmp_path: Path, formula: str, claim: str, words: str) -> None:
    with pytest.raises(ProblemError, match=words):
        constructed_reference(_problem(tmp_path, formula, claim), "smoke")
