"""Figures are shown where a problem is vetted, and nowhere else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy.orm import Session, sessionmaker

from evaluator.evaluation import Evaluation
from evaluator.problems.problem import Problem
from evaluator.problems.vetting import NOT_VETTED, REFUSALS, Label, Vetting
from storage.batches.batches import Batches, BatchLine
from storage.batches.export import batch_rows
from storage.grading.claims import Claims
from storage.grading.verification import verification_of
from storage.leaderboards.read import BoardKey, leaderboard
from storage.models import AuthorBest, RankingRecord, StoredRanking, Submission
from storage.problems import sync_problems
from storage.submissions.deduplication import Ranks
from storage.submissions.new_submission import NewSubmission
from storage.submissions.submissions import Submissions
from storage.vettings import found_vettings, record_vetting, vettings_mark, why_withheld
from tests.storage.conftest import LEASE_S, Finish, candidate, passed

REASON = REFUSALS[Label.ZEROS_PASS]
TRAINING: dict[str, Any] = {"speedup_training": 1.5, "details": {"tracks": {"inference": {}}, "other": 1}}


@pytest.fixture
def unvetted(sessions: sessionmaker[Session], problems: dict[str, Problem]) -> Problem:
    """``relu``, which nobody has vetted."""
    problem = replace(problems["relu"], vettings=())
    with sessions.begin() as session:
        sync_problems(session, {**problems, "relu": problem})
    return problem


def vetting_of(problem: Problem, *labels: Label, **changes: str) -> Vetting:
    refusals = tuple(REFUSALS[label] for label in labels if label in REFUSALS)
    where = {"device": "cpu", "size": "smoke", "precision": "float32", "torch": "2.9", **changes}
    return Vetting(problem.id, problem.version, **where, labels=labels, refusals=refusals, checks=())


def evaluation_of(session: Session, submission_id: str) -> Evaluation:
    submission = session.get_one(Submission, submission_id)
    assert submission.evaluation is not None
    evaluation = submission.evaluation.to_evaluation()
    assert submission.evaluation.speedup == evaluation.speedup
    assert submission.evaluation.speedup_status == evaluation.speedup_status
    assert submission.evaluation.speedup_training == evaluation.speedup_training
    return evaluation


def board(session: Session) -> list[float]:
    return [entry.speedup for entry in leaderboard(session, BoardKey("relu", "cpu", size="smoke"))]


def test_what_is_not_vetted_has_a_verdict_and_no_figures(
    sessions: sessionmaker[Session], finish: Finish, unvetted: Problem
) -> None:
    submission_id = finish(evaluation=TRAINING)
    with sessions() as session:
        evaluation = evaluation_of(session, submission_id)
        assert evaluation.passed
        assert (evaluation.speedup_status, evaluation.speedup_training_status) == ("not_vetted", "not_vetted")
        assert (evaluation.speedup, evaluation.speedup_interval, evaluation.latency_ms) == (None, None, None)
        assert evaluation.notes == (f"no speedup: {NOT_VETTED}",)
        assert evaluation.details == {"other": 1}
        complete = Submissions(session).get(submission_id)
        assert complete is not None
        assert complete.evaluation is not None
        assert complete.evaluation.to_evaluation(complete=True).samples == {}
        assert board(session) == []
        assert verification_of(session, submission_id) is None
        assert unvetted.refusal == NOT_VETTED


def test_what_did_not_pass_is_shown_as_it_is(
    sessions: sessionmaker[Session],
    finish: Finish,
    unvetted: Problem,
) -> None:
    wrong = {"verdict": "wrong_output", "speedup": None, "speedup_interval": None, "latency_ms": None}
    submission_id = finish(evaluation=wrong)
    with sessions() as session:
        evaluation = evaluation_of(session, submission_id)
        assert (evaluation.verdict, evaluation.speedup_status, evaluation.notes) == ("wrong_output", None, ())


def test_figures_appear_with_a_vetting_and_go_with_one_that_refuses(
    sessions: sessionmaker[Session], finish: Finish, unvetted: Problem
) -> None:
    slower = finish("1", evaluation={"speedup": 1.5, "speedup_interval": None}, author="a")
    faster = finish("2", evaluation={"speedup": 3.0, "speedup_interval": None}, author="b")
    private = finish("3", evaluation={"speedup": 4.0, "speedup_interval": None}, visibility="private", owner="c")
    with sessions.begin() as session:
        record_vetting(session, vetting_of(unvetted, Label.HALF_PASSES))
    with sessions() as session:
        assert board(session) == [3.0, 1.5]
        assert [evaluation_of(session, each).speedup for each in (slower, faster, private)] == [1.5, 3.0, 4.0]
        assert session.query(AuthorBest).count() == 2
        assert max(each.speedup for each in session.query(RankingRecord)) == 3.0
    with sessions.begin() as session:
        record_vetting(session, vetting_of(unvetted, Label.ZEROS_PASS))
    with sessions() as session:
        assert board(session) == []
        for each in (slower, faster, private):
            evaluation = evaluation_of(session, each)
            assert (evaluation.speedup_status, evaluation.notes) == ("not_vetted", (f"no speedup: {REASON}",))
        assert session.query(AuthorBest).count() == session.query(RankingRecord).count() == 0
        assert {each.entries for each in session.query(StoredRanking)} == {0}
    with sessions.begin() as session:
        record_vetting(session, vetting_of(unvetted))
    with sessions() as session:
        assert board(session) == [3.0, 1.5]
        assert session.query(AuthorBest).count() == 2


def test_what_comes_with_a_problem_counts_on_every_device_and_what_a_worker_found_on_its_own_kind(
    sessions: sessionmaker[Session], problems: dict[str, Problem], unvetted: Problem
) -> None:
    key = ("relu", unvetted.version)
    with sessions.begin() as session:
        mark = vettings_mark(session)
        record_vetting(session, vetting_of(unvetted))
        assert vettings_mark(session) != mark
        assert [each.device for each in found_vettings(session)[key]] == ["cpu"]
        assert why_withheld(session, *key, "float32", "cpu") is None
        assert why_withheld(session, *key, "float32", "cuda") == NOT_VETTED
        assert why_withheld(session, *key, "float16", "cpu") == NOT_VETTED
    shipped = vetting_of(unvetted, precision="float16")
    with sessions.begin() as session:
        sync_problems(session, {**problems, "relu": replace(unvetted, vettings=(shipped,))})
        assert why_withheld(session, *key, "float16", "cuda") is None


def test_a_vetting_that_comes_with_a_problem_shows_or_takes_back_what_was_evaluated(
    sessions: sessionmaker[Session], problems: dict[str, Problem], finish: Finish, unvetted: Problem
) -> None:
    submission_id = finish()
    refused = replace(unvetted, vettings=(vetting_of(unvetted, Label.ZEROS_PASS),))
    stale = replace(unvetted, vettings=(replace(vetting_of(unvetted), version="another"),))
    for problem, speedup in ((problems["relu"], 2.0), (refused, None), (problems["relu"], 2.0), (stale, None)):
        with sessions.begin() as session:
            sync_problems(session, {**problems, "relu": problem})
        with sessions() as session:
            assert evaluation_of(session, submission_id).speedup == speedup
            assert len(board(session)) == (speedup is not None)


def test_a_batch_has_no_figures_of_what_is_not_vetted(sessions: sessionmaker[Session], unvetted: Problem) -> None:
    new = NewSubmission(unvetted, candidate(), "cpu", "smoke")
    with sessions.begin() as session:
        batches = Batches(session)
        batch_id = batches.create(name="a").id
        batches.add(batch_id, [BatchLine(1, new)], [], Ranks())
        claims = Claims(session)
        build = claims.claim_next("build", ["cpu"], "builder", LEASE_S)
        assert build is not None
        claims.record_built(build, seconds=0.1, log="")
        claim = claims.claim_next("evaluate", ["cpu"], "worker", LEASE_S)
        assert claim is not None
        assert not claim.vetted
        claims.record_evaluation(claim, passed(unvetted))
    with sessions() as session:
        (graded,) = Batches(session).graded(batch_id)
        assert (graded.verdict, graded.speedup) == ("passed", None)
    (row,) = batch_rows(sessions, batch_id)
    assert (row["verdict"], row["speedup"], row["speedup_training"]) == ("passed", None, None)
