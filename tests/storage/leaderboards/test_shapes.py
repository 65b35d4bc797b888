"""Leaderboards of timed shapes, and of the mean of a size and these."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy.orm import Session, sessionmaker

from evaluator.evaluation import Evaluation, Gradients, Interval, Latency, TrackFigures
from evaluator.problems.problem import Problem
from evaluator.problems.shapes import MEAN
from evaluator.problems.vetting import REFUSALS, Label, Vetting
from storage.access.visibility import Visibility
from storage.clock import database_now
from storage.grading.verification import disagreement, verification_of, verify_leaders
from storage.grading.withdrawal import publish, reinstate, withdraw
from storage.leaderboards.history import rankings_of, records
from storage.leaderboards.read import BoardKey, leaderboard
from storage.models import StoredEvaluation
from storage.problems import sync_problems
from storage.vettings import record_vetting
from tests.storage.conftest import Finish, around, passed

NAMES = ("smoke", "smoke/odd", "smoke/wide", f"smoke/{MEAN}")


def at(speedup: float, trained: float | None = None) -> TrackFigures:
    return TrackFigures(
        speedup=speedup,
        speedup_interval=around(speedup),
        speedup_training=trained,
        speedup_training_interval=around(trained),
        latency_ms=Latency(1.0, speedup, 1.1, 2.1),
    )


def figures(speedup: float, odd: float, wide: float | None = None) -> dict[str, Any]:
    """The figures of an evaluation with two timed shapes; there is no mean where one of them has none."""
    shapes = {"odd": at(odd, odd)} | ({} if wide is None else {"wide": at(wide)})
    mean = None if wide is None else (speedup * odd * wide) ** (1 / 3)
    return {
        "speedup": speedup,
        "shapes": shapes,
        "speedup_mean": mean,
        "speedup_mean_interval": around(mean),
        "gradients": Gradients.MATCH,
    }


def shaped(problem: Problem, *speedups: float) -> Evaluation:
    return passed(problem, **figures(*speedups))


def board(session: Session, size: str, track: Any = "inference") -> list[tuple[str, float]]:
    found = leaderboard(session, BoardKey("relu", "cpu", track, size))
    return [(entry.submission_id, round(entry.speedup, 3)) for entry in found]


@pytest.fixture
def relu(problems: dict[str, Problem]) -> Problem:
    return problems["relu"]


def test_each_shape_and_the_mean_have_a_board(sessions: sessionmaker[Session], finish: Finish) -> None:
    first = finish(evaluation=figures(2.0, 1.0, 4.0), source="# 1\nclass ModelNew: ...\n")
    second = finish(evaluation=figures(1.5, 3.0), source="# 2\nclass ModelNew: ...\n")
    with sessions() as session:
        assert {size: board(session, size) for size in NAMES} == {
            "smoke": [(first, 2.0), (second, 1.5)],
            "smoke/odd": [(second, 3.0), (first, 1.0)],
            "smoke/wide": [(first, 4.0)],
            f"smoke/{MEAN}": [(first, 2.0)],
        }
        assert board(session, "smoke/odd", "training") == [(second, 3.0), (first, 1.0)]
        assert board(session, "smoke/wide", "training") == []
        (odd, *_) = leaderboard(session, BoardKey("relu", "cpu", size="smoke/odd"))
        assert (odd.baseline_ms, odd.size) == (3.0, "smoke/odd")
        (mean,) = leaderboard(session, BoardKey("relu", "cpu", size=f"smoke/{MEAN}"))
        assert (mean.latency_ms, mean.baseline_ms, mean.speedup_training) == (None, None, None)


def test_what_is_withdrawn_leaves_them_all_and_comes_back(sessions: sessionmaker[Session], finish: Finish) -> None:
    code = {"source": "# 1\nclass ModelNew: ...\n", "author": "ada"}
    slow = finish(evaluation=figures(2.0, 1.0, 4.0), **code)
    fast = finish(evaluation=figures(1.0, 2.0, 5.0), **code)
    with sessions() as session:
        whole = {size: board(session, size) for size in NAMES}
        assert whole["smoke"] == [(slow, 2.0)]
        assert whole["smoke/odd"] == [(fast, 2.0)]
        told = _records(session)
    with sessions.begin() as session:
        withdraw(session, fast, "a test", "root")
    with sessions() as session:
        assert {size: board(session, size) for size in NAMES} == {
            "smoke": [(slow, 2.0)],
            "smoke/odd": [(slow, 1.0)],
            "smoke/wide": [(slow, 4.0)],
            f"smoke/{MEAN}": [(slow, 2.0)],
        }
        assert {who for found in _records(session).values() for who in found} == {slow}
    with sessions.begin() as session:
        reinstate(session, fast, "root")
    with sessions() as session:
        assert {size: board(session, size) for size in NAMES} == whole
        assert _records(session) == told


def test_a_vetting_shows_many_at_a_cost_of_their_number(
    sessions: sessionmaker[Session], finish: Finish, problems: dict[str, Problem], monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    to_evaluation = StoredEvaluation.to_evaluation

    def counted(stored: StoredEvaluation, **options: Any) -> Evaluation:
        read.append(stored.submission_id)
        return to_evaluation(stored, **options)

    monkeypatch.setattr(StoredEvaluation, "to_evaluation", counted)
    relu = replace(problems["relu"], vettings=())
    vetting = Vetting("relu", relu.version, "cpu", "smoke", "float32", "2", (), (), ())
    refused = replace(vetting, labels=(Label.ZEROS_PASS,), refusals=(REFUSALS[Label.ZEROS_PASS],))
    costs, boards = [], []
    for count in (4, 4):
        with sessions.begin() as session:
            sync_problems(session, {**problems, "relu": relu})
            record_vetting(session, refused)
        for number in range(count):
            begin = len(costs) * 4 + number
            finish(f"# {begin}\nclass ModelNew: ...\n", author="ada", evaluation=figures(2.0 + begin, 1.0, 4.0))
        read.clear()
        with sessions.begin() as session:
            record_vetting(session, vetting)
        costs.append(len(read))
        with sessions() as session:
            boards.append({size: len(board(session, size)) for size in NAMES})
            told = _records(session)
    assert boards == [dict.fromkeys(NAMES, 4), dict.fromkeys(NAMES, 8)]
    # The first and the second time twice as many are shown.
    assert costs[1] <= 2 * costs[0]
    assert [len(told[size, "inference"]) for size in NAMES] == [8, 1, 1, 8]


def _records(session: Session) -> dict[tuple[str, str], list[str]]:
    return {
        (ranking.size, ranking.track): [each.submission_id for each in records(session, ranking)]
        for ranking in rankings_of(session, "relu")
    }


def test_what_was_private_is_ranked_at_each_shape_once_published(
    sessions: sessionmaker[Session], finish: Finish
) -> None:
    hidden = finish(evaluation=figures(2.0, 3.0, 4.0), owner="ada", visibility=Visibility.PRIVATE)
    with sessions.begin() as session:
        assert [board(session, size) for size in NAMES] == [[]] * 4
        publish(session, hidden, Visibility.PUBLIC, "ada")
    with sessions() as session:
        assert [len(board(session, size)) for size in NAMES] == [1] * 4


def test_who_leads_at_a_shape_alone_after_a_withdrawal_is_verified(
    sessions: sessionmaker[Session], finish: Finish
) -> None:
    fast = finish(evaluation=figures(2.0, 4.0, 4.0), source="# 1\nclass ModelNew: ...\n")
    at_odd = finish(evaluation=figures(1.0, 3.0, 1.0), source="# 2\nclass ModelNew: ...\n")
    elsewhere = finish(evaluation=figures(1.5, 1.0, 3.0), source="# 3\nclass ModelNew: ...\n")
    with sessions.begin() as session:
        verify_leaders(session, withdraw(session, fast, "copied", "root"), database_now(session))
    with sessions() as session:
        known = {each: verification_of(session, each) for each in (fast, at_odd, elsewhere)}
    assert {each for each, found in known.items() if found is not None} == {at_odd, elsewhere}


def test_a_shape_that_is_slower_again_contradicts_a_record(relu: Problem) -> None:
    first = shaped(relu, 2.0, 3.0, 4.0)
    assert disagreement(first, first) == ""
    assert "(inference at shape odd) was 1 and not 3" in disagreement(first, shaped(relu, 2.0, 1.0, 4.0))
    gone = shaped(relu, 2.0, 3.0)
    assert disagreement(first, gone) == "evaluated again, it has no speedup (inference at shape wide)"
    meanless = replace(first, speedup_mean=None, speedup_mean_interval=None)
    assert disagreement(first, meanless) == "evaluated again, it has no speedup (inference over all shapes)"
    assert disagreement(first, replace(first, speedup_mean=1.0, speedup_mean_interval=Interval(0.9, 1.1))) == (
        "evaluated again, its speedup (inference over all shapes) was 1 and not 2.88"
    )
