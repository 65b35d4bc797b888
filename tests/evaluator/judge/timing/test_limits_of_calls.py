"""How long a call may take, and who says so."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from evaluator.config import SETTABLE_LIMITS, Limits, checked_limits, parse_limits
from evaluator.errors import ProblemError
from evaluator.problems.loading import load_problem
from evaluator.problems.problem import Problem
from kerneljudge.cli.output import BadUsage
from kerneljudge_server.local import configure
from runtime.settings import Settings


@pytest.mark.parametrize(
    ("baseline_s", "limit_s"), [(None, 60.0), (0.0, 20.0), (0.0005, 20.0), (0.03, 30.0), (0.06, 60.0), (2.0, 60.0)]
)
def test_a_later_call_follows_the_baseline_between_a_floor_and_a_limit(
    baseline_s: float | None, limit_s: float
) -> None:
    assert Limits().later_call_s(baseline_s) == pytest.approx(limit_s)


def test_a_limit_below_the_floor_is_the_limit() -> None:
    assert Limits(call_s=0.5).later_call_s(0.0005) == 0.5


@pytest.mark.parametrize("changes", [{"call_s": -1.0}, {"call_s": math.nan}, {"total_s": 1e9}, {"disk_bytes": 2**60}])
def test_limits_are_bounded(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must be between 0 and"):
        Limits(**changes)


def test_limits_are_read_from_text() -> None:
    assert parse_limits(" call_s=120, total_s = 900 ,") == {"call_s": 120.0, "total_s": 900.0}
    assert parse_limits("") == {}


@pytest.mark.parametrize("text", ["call_s", "call_s=x", "call_s=0", "call_s=-1", "call_s=nan", "speed=3", "call_s=1e9"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - the messages differ
        parse_limits(text)
    with pytest.raises(ValidationError, match="limits"):
        Settings(limits=text)


@pytest.mark.parametrize("value", [True, "1", None, 0])
def test_a_limit_is_a_number(value: object) -> None:
    with pytest.raises(ValueError, match="must be a number above 0"):
        checked_limits({"call_s": value})


def test_every_limit_that_can_be_set_is_one() -> None:
    assert set(SETTABLE_LIMITS) <= set(Limits.__dataclass_fields__)


def _problem(folder: Path, problems: Mapping[str, Problem], limits: str) -> Problem:
    folder = folder / "relu"
    folder.mkdir()
    (folder / "reference.py").write_text(problems["relu"].source)
    (folder / "problem.toml").write_text(f'title = "t"\ndescription = "d"\n[sizes.full]\n[limits]\n{limits}\n')
    return load_problem(folder)


def test_what_is_asked_for_comes_before_the_problem_and_the_problem_before_the_machine(
    tmp_path: Path, problems: dict[str, Problem], monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = _problem(tmp_path, problems, "call_s = 30.0\ntotal_s = 100")
    monkeypatch.setenv("KERNELJUDGE_LIMITS", "call_s=10,total_s=50,load_s=7")
    limits = configure(problem, "cpu", "full", None, None, limits="total_s=200").limits
    assert (limits.call_s, limits.total_s, limits.load_s) == (30.0, 200.0, 7.0)
    assert limits.construct_s == Limits().construct_s
    with pytest.raises(BadUsage, match="no limit"):
        configure(problem, "cpu", "full", None, None, limits="speed=1")


def test_limits_belong_to_a_problems_version_where_there_are_any(tmp_path: Path, problems: dict[str, Problem]) -> None:
    problem = _problem(tmp_path, problems, "call_s = 30.0")
    assert Problem.from_dict(problem.to_dict()) == problem
    plain = problems["relu"].to_dict()
    del plain["limits"]
    assert Problem.from_dict(plain).version == problems["relu"].version


def test_a_problem_with_a_limit_that_is_none_is_refused(tmp_path: Path, problems: dict[str, Problem]) -> None:
    with pytest.raises(ProblemError, match=r"\[limits\]: there is no limit"):
        _problem(tmp_path, problems, "speed = 3")
