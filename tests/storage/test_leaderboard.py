"""Ranking."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy.orm import Session, sessionmaker

from evaluator.evaluation import Gradients, Interval, Latency, Verdict
from evaluator.problem import Problem
from storage.leaderboard import Entry, Ranking, leaderboard, leaders
from storage.problems import sync_problems
from tests.storage.conftest import Finish


def board(sessions: sessionmaker[Session], *args: Any, **options: Any) -> list[Entry]:
    with sessions() as session:
        return leaderboard(session, *(args or ("relu", "cpu")), **{"size": "smoke", **options})


def test_the_fastest_comes_first_and_equals_by_time(sessions: sessionmaker[Session], finish: Finish) -> None:
    speedups = (1.5, 3.0, 1.5, 2.0)
    ids = [finish(f"# {number}", evaluation={"speedup": speedup}) for number, speedup in enumerate(speedups)]
    entries = board(sessions)
    assert [(entry.rank, entry.speedup) for entry in entries] == [(1, 3.0), (2, 2.0), (3, 1.5), (4, 1.5)]
    assert [entry.submission_id for entry in entries] == [ids[1], ids[3], ids[0], ids[2]]


def test_the_leaders_are_the_first_of_each_ranking_and_device(sessions: sessionmaker[Session], finish: Finish) -> None:
    for author, device_name, speedup in (("ada", "one", 1.5), ("bob", "one", 2.5), ("ada", "two", 0.5)):
        finish(author=author, evaluation={"speedup": speedup, "environment": {"device_name": device_name}})
    finish(author="eve", size="full", evaluation={"speedup": 9.0})
    wrong = {"verdict": Verdict.WRONG_OUTPUT, "speedup": None, "speedup_interval": None, "latency_ms": None}
    finish(author="eve", evaluation=wrong)
    relu, gelu = (Ranking(problem, "cpu", "smoke", "float32") for problem in ("relu", "gelu"))
    with sessions() as session:
        found = leaders(session, [relu, gelu])
        assert [(entry.author, entry.device_name, entry.rank) for entry in found] == [
            ("bob", "one", 1),
            ("ada", "two", 1),
        ]
        assert [entry.speedup for entry in leaders(session, [relu._replace(size="full"), relu])] == [9.0, 2.5, 0.5]
        assert leaders(session, [relu], "training") == leaders(session, [gelu]) == leaders(session, []) == []


def test_an_entry_says_what_it_is(
    sessions: sessionmaker[Session], finish: Finish, problems: dict[str, Problem]
) -> None:
    submission_id = finish(author="ada", label="fused")
    (entry,) = board(sessions)
    assert (entry.submission_id, entry.author, entry.label) == (submission_id, "ada", "fused")
    assert (entry.speedup, entry.speedup_interval) == (2.0, Interval(1.9, 2.1))
    assert (entry.latency_ms, entry.baseline_ms, entry.gradients) == (1.0, 2.0, Gradients.MATCH)
    assert (entry.speedup_training, entry.speedup_training_interval) == (None, None)
    assert (entry.device, entry.device_name) == ("cpu", "a processor")
    assert (entry.problem, entry.problem_version) == ("relu", problems["relu"].version)


def test_the_best_of_each_author_and_source_is_ranked(sessions: sessionmaker[Session], finish: Finish) -> None:
    for author, speedup in (("ada", 1.0), ("ada", 2.0), ("bob", 1.5), (None, 1.2), (None, 1.1)):
        finish(author=author, evaluation={"speedup": speedup})
    assert [(entry.author, entry.speedup) for entry in board(sessions)] == [("ada", 2.0), ("bob", 1.5), (None, 1.2)]


@pytest.mark.parametrize("changes", [{"device": "cuda"}, {"size": "full"}, {"precision": "float16"}])
def test_what_is_measured_otherwise_is_not_mixed_in(
    sessions: sessionmaker[Session], finish: Finish, changes: dict[str, Any]
) -> None:
    finish(**changes)
    assert board(sessions) == []
    kind = changes.get("device", "cpu")
    same = {name: value for name, value in changes.items() if name != "device"}
    assert len(board(sessions, "relu", kind, **same)) == 1


def test_only_what_passed_is_ranked(sessions: sessionmaker[Session], finish: Finish) -> None:
    finish(evaluation={"verdict": Verdict.WRONG_OUTPUT, "speedup": None})
    assert board(sessions) == []


def test_the_training_track_admits_only_gradients_that_match(sessions: sessionmaker[Session], finish: Finish) -> None:
    figures = {
        "speedup_training": 1.25,
        "speedup_training_interval": Interval(1.2, 1.3),
        "latency_training_ms": Latency(4.0, 5.0, 4.0, 5.0),
    }
    finish("# match", evaluation=figures)
    for gradients in (Gradients.PARTIAL, Gradients.MISSING):
        finish(f"# {gradients}", evaluation={**figures, "gradients": gradients})
    finish("# no figure")
    (entry,) = board(sessions, "relu", "cpu", "training")
    assert (entry.speedup, entry.speedup_interval) == (1.25, Interval(1.2, 1.3))
    assert (entry.latency_ms, entry.baseline_ms) == (4.0, 5.0)
    assert len(board(sessions)) == 4
    (same,) = [each for each in board(sessions) if each.submission_id == entry.submission_id]
    assert (same.speedup_training, same.speedup_training_interval) == (1.25, Interval(1.2, 1.3))


def test_only_the_current_version_of_a_problem_is_ranked(
    sessions: sessionmaker[Session], finish: Finish, problems: dict[str, Problem]
) -> None:
    finish()
    changed = replace(problems["relu"], source="# changed\n" + problems["relu"].source)
    with sessions.begin() as session:
        sync_problems(session, {**problems, "relu": changed})
    assert board(sessions) == []
    with sessions.begin() as session:
        sync_problems(session, problems)
    assert len(board(sessions)) == 1


def test_pages_continue_after_a_rank(sessions: sessionmaker[Session], finish: Finish) -> None:
    for speedup in (1.0, 2.0, 3.0):
        finish(f"# {speedup}", evaluation={"speedup": speedup})
    assert [entry.rank for entry in board(sessions, limit=2)] == [1, 2]
    assert [(entry.rank, entry.speedup) for entry in board(sessions, limit=2, cursor=2)] == [(3, 1.0)]


def test_what_different_devices_measured_is_not_ranked_together(
    sessions: sessionmaker[Session], finish: Finish
) -> None:
    for name, speedup in (("b", 9.0), ("a", 1.0), (None, 4.0), ("a", 2.0)):
        environment = {} if name is None else {"device_name": name}
        finish(f"# {speedup}", evaluation={"speedup": speedup, "environment": environment})
    # The best of each author and source is that of each device.
    finish("# 9.0", evaluation={"speedup": 3.0, "environment": {"device_name": "a"}})
    ranks = [(entry.device_name, entry.rank, entry.speedup) for entry in board(sessions)]
    assert ranks == [(None, 1, 4.0), ("a", 1, 3.0), ("a", 2, 2.0), ("a", 3, 1.0), ("b", 1, 9.0)]
    paged = [board(sessions, limit=2, cursor=cursor) for cursor in (0, 2, 4)]
    assert [(entry.device_name, entry.rank, entry.speedup) for page in paged for entry in page] == ranks


def test_a_board_may_be_of_one_device(sessions: sessionmaker[Session], finish: Finish) -> None:
    for name, speedup in (("a", 1.0), ("b", 2.0)):
        finish(f"# {name}", evaluation={"speedup": speedup, "environment": {"device_name": name}})
    assert [(entry.device_name, entry.rank) for entry in board(sessions, device_name="b")] == [("b", 1)]
    assert board(sessions, device_name="c") == []
