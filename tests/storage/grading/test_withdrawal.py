"""Withdrawn, reinstated, published: leaderboards are what the evaluations say, whatever was done in between."""

from __future__ import annotations

import random
from typing import Any

import pytest
from sqlalchemy import select
from sqlalchemy.orm import Session, sessionmaker

from evaluator.evaluation import Interval, Latency, Verdict
from storage.access import audit
from storage.access.visibility import Visibility
from storage.grading.withdrawal import NotPublishable, NotRanked, publish, reinstate, withdraw
from storage.models import AuthorBest, RankingRecord, StoredLeaderboardEntry, StoredRanking, Submission, VerdictCount
from tests.storage.conftest import Finish, Submit

TRAINING = {"latency_training_ms": Latency(2.0, 3.0, 2.1, 3.1), "speedup_training_interval": Interval(1.0, 2.0)}


def boards(sessions: sessionmaker[Session]) -> dict[str, Any]:
    """Everything that leaderboards are read from, but for the reference's figures."""
    with sessions() as session:
        kept: dict[str, Any] = {}
        for table, order in (
            (StoredLeaderboardEntry, ("ranking_id", "entry_key")),
            (RankingRecord, ("ranking_id", "certain_speedup")),
            (AuthorBest, ("ranking_id", "author")),
            (VerdictCount, ("problem", "verdict")),
        ):
            rows = session.execute(select(table.__table__).order_by(*(getattr(table, name) for name in order)))
            kept[table.__tablename__] = [dict(row) for row in rows.mappings()]
        columns = (StoredRanking.id, StoredRanking.entries, StoredRanking.best)
        kept["rankings"] = [tuple(row) for row in session.execute(select(*columns).order_by(StoredRanking.id))]
        return kept


def field_of(candidates: int) -> list[dict[str, Any]]:
    """Submissions of few authors with few sources, so that every kind of best is lost to another."""
    drawn = random.Random(7)  # noqa: S311 - nothing is kept secret by it
    return [
        {
            "source": f"# {drawn.randrange(3)}",
            "author": drawn.choice(["ada", "bob", None]),
            "evaluation": {
                "speedup": drawn.choice([0.5, 1.0, 2.0, 3.0]) + drawn.random() / 8,
                "speedup_training": 1.0 + drawn.random(),
                **TRAINING,
            },
        }
        for _ in range(candidates)
    ]


def test_a_withdrawal_leaves_what_was_there_without_it_and_is_undone(
    sessions: sessionmaker[Session], finish: Finish
) -> None:
    ids = [finish(**each) for each in field_of(9)]
    before = boards(sessions)
    for submission_id in ids:
        with sessions.begin() as session:
            withdraw(session, submission_id, "a test", "root")
        without = boards(sessions)
        assert submission_id not in str({name: without[name] for name in ("leaderboard_entries", "author_bests")})
        for ranking_id, entries, best in without["rankings"]:
            own = [row for row in without["leaderboard_entries"] if row["ranking_id"] == ranking_id]
            records = [row for row in without["ranking_records"] if row["ranking_id"] == ranking_id]
            assert (entries, best) == (len(own), max(row["certain_speedup"] for row in own))
            assert best == max(row["certain_speedup"] for row in records)
            assert [row["finished_at"] for row in records] == sorted(row["finished_at"] for row in records)
            assert submission_id not in [row["submission_id"] for row in records]
        with sessions.begin() as session:
            reinstate(session, submission_id, "root")
        assert boards(sessions) == before


def test_what_all_but_one_are_withdrawn_of_is_as_if_there_were_but_one(
    sessions: sessionmaker[Session], finish: Finish
) -> None:
    first, *others = [finish(**each) for each in field_of(6)]
    with sessions.begin() as session:
        for submission_id in others:
            withdraw(session, submission_id, "a test", None)
    kept = boards(sessions)
    assert {row["submission_id"] for name in ("leaderboard_entries", "ranking_records") for row in kept[name]} == {
        first
    }
    with sessions.begin() as session:
        withdraw(session, first, "a test", None)
    assert {(entries, best) for _, entries, best in boards(sessions)["rankings"]} == {(0, 0.0)}


def test_a_withdrawal_keeps_its_reason_and_its_history(sessions: sessionmaker[Session], finish: Finish) -> None:
    submission_id = finish()
    with sessions.begin() as session:
        withdraw(session, submission_id, "it reads the clock", "root")
        # The first reason stays.
        withdraw(session, submission_id, "another reason", "eve")
    with sessions() as session:
        submission = session.get_one(Submission, submission_id)
        assert (submission.withdrawn_by, submission.withdrawn_reason) == ("root", "it reads the clock")
        assert submission.evaluation is not None
        assert submission.evaluation.speedup == 2.0
    with sessions.begin() as session:
        reinstate(session, submission_id, "root")
        reinstate(session, submission_id, "root")
    with sessions() as session:
        events = audit.page(session).items
        assert [event.action for event in events] == ["submission.reinstated", "submission.withdrawn"]
        assert events[0].details == {"reason": "it reads the clock", "withdrawn_by": "root"}


def test_only_what_has_passed_is_withdrawn(sessions: sessionmaker[Session], finish: Finish, submit: Submit) -> None:
    wrong = {"verdict": Verdict.WRONG_OUTPUT, "speedup": None, "speedup_interval": None, "latency_ms": None}
    for submission_id in (submit(), finish(evaluation=wrong)):
        with sessions.begin() as session, pytest.raises(NotRanked):
            withdraw(session, submission_id, "a test", None)


def test_what_is_published_late_is_ranked_as_if_it_had_been_public(
    sessions: sessionmaker[Session], finish: Finish
) -> None:
    field = field_of(6)
    hidden = [finish(**each, owner="ada", visibility=Visibility.PRIVATE) for each in field[:3]]
    shown = [finish(**each) for each in field[3:]]
    kept = boards(sessions)
    assert {row["submission_id"] for row in kept["ranking_records"]} <= set(shown)
    assert sum(row["count"] for row in kept["verdict_counts"]) == 3
    with sessions.begin() as session:
        for submission_id in hidden:
            publish(session, submission_id, Visibility.SOURCE_HIDDEN, "ada")
            publish(session, submission_id, Visibility.PUBLIC, "ada")
    published = boards(sessions)
    assert sum(row["count"] for row in published["verdict_counts"]) == 6
    # As it would have come about by itself: taking one out and putting it in again changes nothing any more.
    for submission_id in hidden:
        with sessions.begin() as session:
            withdraw(session, submission_id, "a test", None)
            reinstate(session, submission_id, None)
    assert boards(sessions) == published
    with sessions.begin() as session, pytest.raises(NotPublishable):
        publish(session, hidden[0], Visibility.PRIVATE, "ada")
