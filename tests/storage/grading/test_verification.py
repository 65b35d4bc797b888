"""What makes a record is evaluated again, and holds or goes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import update
from sqlalchemy.orm import Session, sessionmaker

from evaluator.evaluation import Gradients, Interval, SpeedupStatus, Verdict
from evaluator.problems.problem import Problem
from storage.access.visibility import Visibility
from storage.clock import database_now
from storage.grading.claims import Claims
from storage.grading.verification import checks_of, disagreement, verification_of, verify_leaders
from storage.grading.withdrawal import publish, withdraw
from storage.leaderboards.history import author_figures, rankings_of, records
from storage.leaderboards.read import BoardKey, leaderboard
from storage.models import Submission, VerificationStatus
from storage.queue import workers
from storage.queue.eligibility import DeviceCapabilities
from storage.queue.fair_order import lowest_rank
from storage.submissions.listing import page_of_submissions
from storage.submissions.submissions import Submissions
from tests.storage.conftest import LEASE_S, Submit, passed

HERE, THERE = (DeviceCapabilities(device, "a processor") for device in ("here/cpu", "there/cpu"))


class Graded:
    """Takes submissions all the way, on one of two machines."""

    def __init__(self, sessions: sessionmaker[Session], submit: Submit, problem: Problem) -> None:
        self.sessions = sessions
        self._submit = submit
        self._problem = problem

    def new(self, source: str, speedup: float, author: str = "ada", **changes: Any) -> str:
        """A submission that was evaluated here; a record is to be verified."""
        owned = {name: changes.pop(name) for name in ("owner", "visibility") if name in changes}
        submission_id = self._submit(source, author=author, **owned)
        self.grade(submission_id, speedup=speedup, speedup_interval=Interval(speedup - 0.1, speedup + 0.1), **changes)
        return submission_id

    def grade(self, submission_id: str, device_capabilities: DeviceCapabilities = HERE, **changes: Any) -> None:
        with self.sessions.begin() as session:
            claims = Claims(session)
            build = claims.claim(submission_id, "build", "builder", LEASE_S)
            assert build is not None
            claims.record_built(build, seconds=0.1, log="")
            claim = claims.claim(submission_id, "evaluate", "w", LEASE_S, device_capabilities)
            assert claim is not None
            assert claims.record_evaluation(claim, passed(self._problem, **changes), verify=True)

    def measured_often(self, submission_id: str) -> None:
        """As if its pauses were over, and no more tries were left."""
        with self.sessions.begin() as session:
            own = update(Submission).where(Submission.id == submission_id)
            session.execute(own.values(not_before=None, unsettled=9))

    def check(self, submission_id: str) -> str:
        """The latest evaluation again."""
        with self.sessions() as session:
            return checks_of(session, submission_id)[-1].id

    def status(self, submission_id: str) -> tuple[str, str] | None:
        with self.sessions() as session:
            found = verification_of(session, submission_id)
            return None if found is None else (found.status, found.message)

    def board(self) -> list[tuple[str, str | None]]:
        with self.sessions() as session:
            found = leaderboard(session, BoardKey("relu", "cpu", size="smoke"))
            return [(entry.submission_id, entry.verification) for entry in found]


@pytest.fixture
def graded(sessions: sessionmaker[Session], submit: Submit, problems: dict[str, Problem]) -> Graded:
    return Graded(sessions, submit, problems["relu"])


def test_a_record_is_evaluated_again_last_of_all_on_a_device_of_the_same_name(graded: Graded) -> None:
    first = graded.new("# 1", 2.0)
    slower = graded.new("# 2", 1.5)
    assert graded.status(first) == (VerificationStatus.PENDING, "")
    assert graded.status(slower) is None
    assert graded.board() == [(first, "pending"), (slower, None)]
    with graded.sessions.begin() as session:
        (check,) = checks_of(session, first)
        assert (check.verifies, check.author, check.needs_device_name) == (first, None, "a processor")
        assert (check.source_digest, check.status, check.stage) == (
            session.get_one(Submission, first).source_digest,
            "queued",
            "build",
        )
        # Behind batches that come now, which do not begin where it waits.
        assert check.queue_rank > 10**9
        assert lowest_rank(session, "cpu") == 1
        # Nobody has handed it in, so nobody lists or cancels it.
        submissions = Submissions(session)
        assert [each.id for each in page_of_submissions(session).items] == [slower, first]
        assert submissions.cancel(check.id).status == "queued"


def test_what_is_confirmed_is_verified_and_counts_nowhere_twice(graded: Graded) -> None:
    first = graded.new("# 1", 2.0)
    check = graded.check(first)
    graded.grade(check, speedup=1.9, speedup_interval=Interval(1.85, 1.95))
    assert graded.status(first) == (VerificationStatus.VERIFIED, "evaluated again, and confirmed")
    assert graded.board() == [(first, "verified")]
    with graded.sessions() as session:
        (ranking,) = rankings_of(session, "relu")
        assert (ranking.entries, ranking.best) == (1, 1.9)
        evaluations = [session.get_one(Submission, each).evaluation for each in (first, check)]
        assert [each.speedup for each in evaluations if each is not None] == [2.0, 1.9]


def test_what_two_evaluations_again_do_not_confirm_is_withdrawn_and_the_next_one_verified(graded: Graded) -> None:
    honest = graded.new("# 1", 2.0, author="bob")
    fluke = graded.new("# 2", 5.0)
    better = graded.new("# 3", 2.5)
    assert graded.status(better) is None
    graded.grade(graded.check(fluke), speedup=2.0, speedup_interval=Interval(1.9, 2.1))
    status, message = graded.status(fluke) or ("", "")
    assert (status, message) == (
        VerificationStatus.PENDING,
        "to be evaluated once more: evaluated again, its speedup (inference) was 2 and not 5",
    )
    assert len(graded.board()) == 3
    graded.grade(graded.check(fluke), speedup=2.0, speedup_interval=Interval(1.9, 2.1))
    assert (graded.status(fluke) or ("",))[0] == VerificationStatus.FAILED
    assert graded.board() == [(better, "pending"), (honest, "pending")]
    with graded.sessions() as session:
        (ranking,) = rankings_of(session, "relu")
        assert (ranking.entries, ranking.best) == (2, 2.4)
        assert [record.submission_id for record in records(session, ranking)] == [honest, better]
        figures = {each.author: each for each in author_figures(session, [ranking.id], 10)}
        assert figures["ada"].log_speedup == pytest.approx(0.916, abs=0.001)
        assert len(checks_of(session, fluke)) == 2
        # Its own evaluation stays as it was.
        assert session.get_one(Submission, fluke).evaluation is not None


def test_an_evaluation_again_that_is_unsettled_says_nothing_of_the_record_and_is_made_later(graded: Graded) -> None:
    first = graded.new("# 1", 2.0)
    unsettled = {"speedup": None, "speedup_status": SpeedupStatus.UNSETTLED}
    for _ in range(3):
        graded.measured_often(graded.check(first))
        graded.grade(graded.check(first), **unsettled)
    assert graded.status(first) == (
        VerificationStatus.PENDING,
        "to be tried again later: the machine was too noisy to tell how fast it is",
    )
    graded.measured_often(graded.check(first))
    graded.grade(graded.check(first))
    assert (graded.status(first) or ("",))[0] == VerificationStatus.VERIFIED


def test_one_confirmation_of_two_is_enough(graded: Graded) -> None:
    first = graded.new("# 1", 3.0)
    graded.grade(graded.check(first), verdict=Verdict.WRONG_OUTPUT, message="no", speedup=None, speedup_interval=None)
    graded.grade(graded.check(first), speedup=3.0)
    assert (graded.status(first) or ("",))[0] == VerificationStatus.VERIFIED


def test_another_device_of_the_name_goes_first_where_there_is_one(graded: Graded) -> None:
    first = graded.new("# 1", 2.0)
    check = graded.check(first)
    with graded.sessions.begin() as session:
        claims = Claims(session)
        build = claims.claim(check, "build", "builder", LEASE_S)
        assert build is not None
        claims.record_built(build, seconds=0.1, log="")
        for device_capabilities in (HERE, THERE):
            capabilities = {"device_id": device_capabilities.device_id, "device_name": device_capabilities.device_name}
            workers.register(
                session,
                str(device_capabilities.device_id),
                kind="evaluate",
                queues=["evaluate.cpu"],
                device="cpu",
                capabilities=capabilities,
            )
        assert claims.claim(check, "evaluate", "here/cpu", LEASE_S, HERE) is None
        workers.unregister(session, "there/cpu")
        claim = claims.claim(check, "evaluate", "here/cpu", LEASE_S, HERE)
        assert claim is not None
        assert claims.release(claim)
        assert claims.claim(check, "evaluate", "there/cpu", LEASE_S, THERE) is not None


def test_a_fault_of_ours_says_nothing_of_the_record_and_it_is_tried_later(graded: Graded) -> None:
    first = graded.new("# 1", 2.0)
    check = graded.check(first)
    with graded.sessions.begin() as session:
        claims = Claims(session)
        claim = claims.claim(check, "build", "builder", LEASE_S)
        assert claim is not None
        assert claims.record_fault(claim, "the builder died", retriable=False, max_attempts=3)
    assert graded.status(first) == (VerificationStatus.PENDING, "to be tried again later: the builder died")
    with graded.sessions() as session:
        again = checks_of(session, first)[-1]
        assert again.id != check
        assert again.not_before is not None
        assert again.not_before > again.submitted_at


def test_a_check_is_not_left_to_a_device_that_had_a_fault_with_it(graded: Graded) -> None:
    first = graded.new("# 1", 2.0)
    check = graded.check(first)
    with graded.sessions.begin() as session:
        for name, device_capabilities in (("here/cpu", HERE), ("there/cpu", THERE)):
            capabilities = {"device_id": device_capabilities.device_id, "device_name": device_capabilities.device_name}
            workers.register(
                session, name, kind="evaluate", queues=["evaluate.cpu"], device="cpu", capabilities=capabilities
            )
        claims = Claims(session)
        build = claims.claim(check, "build", "builder", LEASE_S)
        assert build is not None
        claims.record_built(build, seconds=0.1, log="")
        assert claims.claim(check, "evaluate", "here/cpu", LEASE_S, HERE) is None
        claim = claims.claim(check, "evaluate", "there/cpu", LEASE_S, THERE)
        assert claim is not None
        assert claims.record_fault(claim, "the judge died", retriable=True, max_attempts=9)
        session.execute(update(Submission).values(not_before=None))
        assert claims.claim(check, "evaluate", "there/cpu", LEASE_S, THERE) is None
        assert claims.claim(check, "evaluate", "here/cpu", LEASE_S, HERE) is not None


def test_what_cannot_be_evaluated_again_is_not_tried_for_ever(graded: Graded) -> None:
    first = graded.new("# 1", 2.0)
    rests = []
    for _ in range(5):
        check = graded.check(first)
        with graded.sessions.begin() as session:
            session.execute(update(Submission).values(not_before=None))
            claims = Claims(session)
            claim = claims.claim(check, "build", "builder", LEASE_S)
            assert claim is not None
            assert claims.record_fault(claim, "the builder died", retriable=False, max_attempts=3)
        with graded.sessions() as session:
            latest = checks_of(session, first)[-1]
            rests.append(latest.not_before and round((latest.not_before - latest.submitted_at).total_seconds() / 3600))
    assert rests == [1, 2, 4, 8, None]
    status = graded.status(first)
    assert status == (VerificationStatus.PENDING, "not evaluated again, after 5 tries: the builder died")


def test_who_leads_after_a_withdrawal_is_evaluated_again(graded: Graded) -> None:
    first = graded.new("# 1", 2.0)
    second = graded.new("# 2", 1.5)
    with graded.sessions.begin() as session:
        withdrawn = withdraw(session, first, "copied", "root")
        verify_leaders(session, withdrawn, database_now(session))
    assert graded.board() == [(second, "pending")]


def test_what_is_published_late_does_not_bring_older_software_back(graded: Graded) -> None:
    old = {"environment": {"device_name": "a processor", "torch": "2.10.0"}}
    new = {"environment": {"device_name": "a processor", "torch": "2.11.0"}}
    late = graded.new("# late", 3.0, visibility=Visibility.PRIVATE, owner="ada", **old)
    now = graded.new("# now", 1.5, **new)
    with graded.sessions.begin() as session:
        publish(session, late, Visibility.PUBLIC, "ada")
    assert [submission_id for submission_id, _ in graded.board()] == [now]


def test_what_other_software_measures_is_not_held_against_a_record(graded: Graded) -> None:
    first = graded.new("# 1", 2.0, environment={"device_name": "a processor", "torch": "2.11.0"})
    graded.grade(graded.check(first), speedup=1.0, environment={"device_name": "a processor", "torch": "2.12.0"})
    assert graded.status(first) == (
        VerificationStatus.PENDING,
        "it was measured under torch 2.11.0, and can only be evaluated under torch 2.12.0 now",
    )
    assert graded.board() == [(first, "pending")]


@pytest.mark.parametrize(
    ("again", "doubt"),
    [
        ({}, ""),
        ({"speedup": 1.7, "speedup_interval": Interval(1.6, 1.8)}, ""),
        ({"speedup": 4.0, "speedup_interval": Interval(3.9, 4.1)}, ""),
        ({"speedup": 1.5, "speedup_interval": Interval(1.0, 2.0)}, ""),
        ({"speedup": 1.5, "speedup_interval": Interval(1.4, 1.6)}, "its speedup (inference) was 1.5 and not 2"),
        ({"speedup": 1.5, "speedup_interval": None}, "its speedup (inference) was 1.5 and not 2"),
        ({"speedup": float("nan"), "speedup_interval": None}, "its speedup (inference) was nan and not 2"),
        ({"gradients": Gradients.MISSING}, "its gradients are missing"),
        (
            {"verdict": Verdict.REJECTED, "message": "late write\nmore", "speedup": None, "speedup_training": None},
            "it got rejected",
        ),
    ],
)
def test_what_counts_as_confirmed(problems: dict[str, Problem], again: dict[str, Any], doubt: str) -> None:
    first = passed(problems["relu"], speedup_training=1.2, speedup_training_interval=Interval(1.1, 1.3))
    statuses = dict.fromkeys(("speedup_status", "speedup_training_status")) if "verdict" in again else {}
    found = disagreement(first, replace(first, **again, **statuses))
    assert found == (f"evaluated again, {doubt}" if doubt else "")


def test_without_the_wish_for_it_nothing_is_evaluated_again(
    sessions: sessionmaker[Session], problems: dict[str, Problem], submit: Submit
) -> None:
    submission_id = submit()
    with sessions.begin() as session:
        claims = Claims(session)
        for stage in ("build", "evaluate"):
            claim = claims.claim(submission_id, stage, "w", LEASE_S)
            assert claim is not None
            if stage == "build":
                claims.record_built(claim, seconds=0.1, log="")
            else:
                claims.record_evaluation(claim, passed(problems["relu"]))
        assert verification_of(session, submission_id) is None
