"""The self-test: of a real engine, and of judges that get something wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from evaluator.candidates.candidate import Candidate
from evaluator.config import EvalConfig
from evaluator.engine import Callbacks, Engine
from evaluator.errors import EvaluationCancelled, InfrastructureFault
from evaluator.evaluation import Evaluation, Verdict
from evaluator.problems.problem import Problem
from evaluator.selftest import self_test


class Lenient:
    """A judge that lets everything pass, until it is out of ``patience``."""

    def __init__(self, patience: int = 99, error: type[Exception] = InfrastructureFault) -> None:
        self._patience = patience
        self._error = error

    def evaluate(
        self,
        problem: Problem,
        candidate: Candidate,  # noqa: ARG002 - the interface
        config: EvalConfig,
        callbacks: Callbacks,  # noqa: ARG002 - the interface
    ) -> Evaluation:
        self._patience -= 1
        if self._patience < 0:
            raise self._error("the judge died")
        values = {"device": config.device, "size": config.size, "precision": config.precision}
        return Evaluation(Verdict.PASSED, "as always", problem.id, problem.version, **values)


def test_an_engine_that_is_in_order_passes_again_and_again(tmp_path: Path) -> None:
    with Engine(device="cpu", cache_dir=tmp_path) as engine:
        for _ in range(2):
            result = self_test(engine, "cpu")
            assert result.passed, result.failure


def test_a_judge_that_lets_everything_pass_fails() -> None:
    result = self_test(Lenient(), "cpu")
    assert not result.passed
    assert result.failure == "the wrong candidate got passed instead of wrong_output: as always"


def test_a_judge_that_dies_fails() -> None:
    assert self_test(Lenient(0), "cpu").failure == "the right candidate could not be judged: the judge died"


def test_being_cancelled_is_no_result() -> None:
    with pytest.raises(EvaluationCancelled):
        self_test(Lenient(0, EvaluationCancelled), "cpu")
