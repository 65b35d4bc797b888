"""Shapes as the engine judges them: figures at timed ones, and no word about held-out ones."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace

import pytest

from evaluator.candidates.candidate import Candidate, parse_candidate
from evaluator.config import EvalConfig, SamplingPlan
from evaluator.engine import Callbacks, Engine, Progress
from evaluator.errors import ProblemError
from evaluator.evaluation import Evaluation, Gradients, Interval, SpeedupStatus, TrackFigures, Verdict
from evaluator.feedback.feedback import feedback
from evaluator.problems.problem import Problem
from evaluator.problems.shapes import Shape
from evaluator.stages.shapes import geometric_mean
from tests.settled import settled

_BRIEF = SamplingPlan(min_samples=6, max_samples=10, warm_samples=0, budget_s=0.5)
_CHECK = SamplingPlan.usual("cpu", "full", "check")
_RIGHT = "from model import Model\nclass ModelNew(Model):\n    pass\n"
_SHOWN = re.compile(r"(?<![\d.])1237(?!\d)")
"""The held-out extent, and no digits of a time."""
_TELLS = """\
import sys
import torch
from model import Model
class ModelNew(Model):
    def forward(self, x):
        if x.shape[0] == 1237:
            print(f"rows are {x.shape[0]}", flush=True)
            raise RuntimeError(f"there are {x.shape[0]} rows")
        return super().forward(x)
"""


@pytest.fixture
def problem(problems: dict[str, Problem]) -> Problem:
    """Tensors of 8 MiB, so that calls take long enough for steady figures."""
    sizes = {"full": {"rows": 2048, "dim": 1024}}
    return replace(problems["honest_row_scale_inherited"], shapes={}, sizes=sizes)


def _with(problem: Problem, **shapes: Shape) -> Problem:
    return replace(problem, shapes={"full": shapes})


def _evaluate(
    engine: Engine, problem: Problem, source: str, plan: SamplingPlan, steps: list[Progress] | None = None
) -> Evaluation:
    candidate = parse_candidate(code=source)
    assert isinstance(candidate, Candidate)
    callbacks = Callbacks() if steps is None else Callbacks(steps.append)
    return engine.evaluate(problem, candidate, EvalConfig(size="full", sampling=plan), callbacks)


def test_timed_shapes_have_figures_and_samples_and_a_mean_with_the_size(cpu_engine: Engine, problem: Problem) -> None:
    shapes = _with(problem, wide=Shape("timed", {"dim": 2048}), tall=Shape("checked", {"rows": 65}))
    found = settled(lambda: _evaluate(cpu_engine, shapes, _RIGHT, _BRIEF))
    assert found.verdict is Verdict.PASSED, found.message
    assert found.size == "full"
    assert set(found.shapes) == {"wide"}
    wide = found.shapes["wide"]
    assert wide.speedup_status is SpeedupStatus.MEASURED
    assert found.speedup is not None
    assert wide.speedup is not None
    assert found.speedup_mean == pytest.approx(math.sqrt(found.speedup * wide.speedup))
    assert found.speedup_mean_interval is not None
    assert found.speedup_mean_interval.low < found.speedup_mean < found.speedup_mean_interval.high
    assert {"inference", "training", "inference/wide", "training/wide"} == set(found.samples)
    assert "it passes at the shapes wide, tall as well" in found.notes
    assert found.stage_s["total"] >= found.stage_s["shapes"] > 0
    assert list(found.stage_s)[-1] == "total"
    assert Evaluation.from_dict(json.loads(json.dumps(found.to_dict()))) == found


def test_no_figure_of_a_shape_is_left_without_a_speedup(problem: Problem) -> None:
    figures = {"speedup": 2.0, "speedup_mean": 2.5, "shapes": {"wide": TrackFigures(speedup=3.0)}}
    told = {"message": "", "problem": problem.id, "problem_version": problem.version, "device": "cpu", "size": "full"}
    found = Evaluation(verdict=Verdict.PASSED, precision="float32", gradients=Gradients.MATCH, **told, **figures)
    without = found.without_speedup(SpeedupStatus.NOT_VETTED)
    assert (without.speedup, without.speedup_mean, without.shapes) == (None, None, {})


def test_a_check_times_no_shape(cpu_engine: Engine, problem: Problem) -> None:
    shapes = _with(problem, wide=Shape("timed", {"dim": 2048}))
    found = _evaluate(cpu_engine, shapes, _RIGHT, _CHECK)
    assert found.verdict is Verdict.PASSED
    assert found.shapes["wide"].speedup is None
    assert found.speedup_mean is None
    assert found.samples == {}


def test_a_shown_shape_is_named_with_its_values_and_the_candidates_own_words(
    cpu_engine: Engine, problem: Problem
) -> None:
    found = _evaluate(cpu_engine, _with(problem, tall=Shape("checked", {"rows": 1237})), _TELLS, _CHECK)
    assert found.verdict is Verdict.RUNTIME_ERROR
    assert found.message.startswith("at the shape tall (rows = 1237): ")
    assert "there are 1237 rows" in found.message
    assert "rows are 1237" in found.log
    assert found.size == "full"


def test_nothing_tells_a_held_out_shape(cpu_engine: Engine, problem: Problem) -> None:
    steps: list[Progress] = []
    shapes = _with(problem, secretly=Shape("held_out", {"rows": 1237}), shown=Shape("checked", {"rows": 65}))
    found = _evaluate(cpu_engine, shapes, _TELLS, _CHECK, steps)
    assert found.verdict is Verdict.RUNTIME_ERROR
    assert found.message == "at a held-out shape with a ragged tail, a smaller extent: it fails"
    told = json.dumps([found.to_dict(), [step.message for step in steps]])
    assert not _SHOWN.search(told)
    assert "secretly" not in told
    assert any(step.stage == "shapes" and "shape 1 of 2" in step.message for step in steps)


def test_a_passing_candidate_learns_only_the_number_of_held_out_shapes(cpu_engine: Engine, problem: Problem) -> None:
    shapes = _with(problem, secretly=Shape("held_out", {"rows": 1237}), also=Shape("held_out", {"rows": 1}))
    found = _evaluate(cpu_engine, shapes, _RIGHT, _CHECK)
    assert found.verdict is Verdict.PASSED
    assert "it passes at 2 held-out shapes as well" in found.notes
    assert not _SHOWN.search(json.dumps(found.to_dict()))


def test_gradients_that_are_missing_at_a_shape_end_the_training_track(cpu_engine: Engine, problem: Problem) -> None:
    source = """\
from model import Model
class ModelNew(Model):
    def forward(self, x):
        found = super().forward(x)
        return found if x.shape[0] == 2048 else found.detach()
"""
    shapes = _with(problem, wide=Shape("timed", {"dim": 2048}), tall=Shape("checked", {"rows": 65}))
    found = settled(lambda: _evaluate(cpu_engine, shapes, source, _BRIEF))
    assert found.verdict is Verdict.PASSED, found.message
    assert found.gradients is Gradients.MISSING
    assert found.speedup is not None
    assert (found.speedup_training, found.speedup_training_status, found.speedup_training_mean) == (None, None, None)
    assert "training" not in found.roofline
    assert found.shapes["wide"].speedup_training is None
    assert set(found.samples) == {"inference", "inference/wide"}
    assert set(found.details["tracks"]) == {"inference"}
    assert "gradients are missing at the shape tall, so there is no training track" in found.notes


def test_gradients_that_are_missing_at_the_size_are_missing_whatever_shapes_have(
    cpu_engine: Engine, problem: Problem
) -> None:
    source = """\
from model import Model
class ModelNew(Model):
    def forward(self, x):
        found = super().forward(x)
        return found.detach() if x.shape[0] == 2048 else found
"""
    shapes = _with(problem, tall=Shape("checked", {"rows": 65}))
    found = _evaluate(cpu_engine, shapes, source, _CHECK)
    assert (found.verdict, found.gradients) == (Verdict.PASSED, Gradients.MISSING)


def test_what_fails_at_a_held_out_shape_keeps_no_figure_of_the_size(cpu_engine: Engine, problem: Problem) -> None:
    found = _evaluate(cpu_engine, _with(problem, other=Shape("held_out", {"rows": 1237})), _TELLS, _BRIEF)
    assert found.verdict is Verdict.RUNTIME_ERROR
    assert found.gradients is Gradients.NOT_CHECKED
    assert (found.samples, found.notes) == ({}, ())
    assert not {"tracks", "gradient_max_abs", "memory"} & found.details.keys()


def test_feedback_about_a_wrong_output_names_the_shown_shape(cpu_engine: Engine, problem: Problem) -> None:
    twice = "    def forward(self, x):\n        return super().forward(x) * (1 + (x.shape[0] == 65))\n"
    source = _RIGHT.replace("    pass\n", twice)
    found = _evaluate(cpu_engine, _with(problem, tall=Shape("checked", {"rows": 65})), source, _CHECK)
    assert found.verdict is Verdict.WRONG_OUTPUT
    assert "at the shape tall (rows = 65), and not at the size itself:" in feedback(found, source)


def test_an_error_at_a_held_out_shape_tells_nothing_of_it(cpu_engine: Engine, problem: Problem) -> None:
    source = problem.source.replace(
        "    def forward(self, x):\n", "    def forward(self, x):\n        assert rows != 1237, f'no {rows}'\n"
    )
    broken = replace(_with(problem, bad=Shape("held_out", {"rows": 1237})), source=source)
    with pytest.raises(ProblemError) as caught:
        _evaluate(cpu_engine, broken, _RIGHT, _CHECK)
    assert str(caught.value).startswith("at shape 1 of 1: it cannot be judged there")
    assert not _SHOWN.search(str(caught.value))


def test_a_shape_at_which_the_reference_fails_is_the_problems_fault(cpu_engine: Engine, problem: Problem) -> None:
    source = problem.source.replace(
        "    def forward(self, x):\n", "    def forward(self, x):\n        assert transposed < 2\n"
    )
    broken = replace(_with(problem, bad=Shape("checked", {"transposed": 2})), source=source)
    with pytest.raises(ProblemError, match="at shape 1 of 1, bad: the reference cannot be run to find its shapes"):
        _evaluate(cpu_engine, broken, _RIGHT, _CHECK)


def test_a_geometric_mean_has_the_interval_of_independent_logarithms() -> None:
    value, interval = geometric_mean([(2.0, Interval(1.9, 2.0 * 2.0 / 1.9)), (8.0, Interval(7.6, 8.0 * 8.0 / 7.6))])
    assert value == pytest.approx(4.0)
    half = math.log(2.0 / 1.9)
    assert math.log(interval.high / value) == pytest.approx(half / math.sqrt(2.0))
    assert math.log(value / interval.low) == pytest.approx(half / math.sqrt(2.0))
    assert geometric_mean([(3.0, Interval(2.0, 4.5))]) == (
        pytest.approx(3.0),
        Interval(pytest.approx(2.0), pytest.approx(4.5)),
    )
