"""Batches in the database: shared, completed, cancelled, by many at once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta

import pytest
from sqlalchemy import func, select
from sqlalchemy.orm import Session, sessionmaker

from evaluator.problems.problem import Problem
from kerneljudge.terms.rules import Rules
from runtime.settings import Settings
from storage.batches.batches import BatchClosed, Batches, BatchLine, LineError
from storage.database import create_engine_for, session_factory
from storage.grading.claims import Claims
from storage.models import BatchItem, BatchStatus, Submission
from storage.submissions.deduplication import Ranks
from storage.submissions.listing import page_of_submissions
from storage.submissions.new_submission import NewSubmission
from tests.storage.conftest import LEASE_S, candidate, passed


def lines(problem: Problem, *sources: str, first: int = 1) -> list[BatchLine]:
    return [
        BatchLine(number, NewSubmission(problem, candidate(source), "cpu", "smoke"))
        for number, source in enumerate(sources, start=first)
    ]


def together(*actions: Callable[[], None]) -> None:
    """Run these at once; raises what one of them raised."""
    faults: list[BaseException] = []

    def run(action: Callable[[], None]) -> None:
        try:
            action()
        except BaseException as error:  # noqa: BLE001 - raised again below
            faults.append(error)

    threads = [threading.Thread(target=run, args=(action,)) for action in actions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if faults:
        raise faults[0]


def grade_next(sessions: sessionmaker[Session], problem: Problem, worker: str) -> bool:
    """One submission from the queue to its verdict; whether there was one."""
    with sessions.begin() as session:
        claim = Claims(session).claim_next("build", ["cpu"], worker, LEASE_S)
        if claim is None:
            return False
        assert Claims(session).record_built(claim, seconds=0.0, log="")
        ready = Claims(session).claim(claim.submission_id, "evaluate", worker, LEASE_S)
        assert ready is not None
    with sessions.begin() as session:
        assert Claims(session).record_evaluation(ready, passed(problem))
    return True


def test_batches_that_bring_the_same_at_once_share_it_while_it_is_graded(
    sessions: sessionmaker[Session], problems: dict[str, Problem]
) -> None:
    relu, ids, handed_in = problems["relu"], [], threading.Event()

    def hand_in(turned: bool) -> None:
        with sessions.begin() as session:
            batch_id = Batches(session).create().id
        ids.append(batch_id)
        sources = [f"s{number}" for number in range(40)]
        ranks = Ranks()
        for start in range(0, 40, 10):
            chunk = sources[start : start + 10]
            with sessions.begin() as session:
                asked = lines(relu, *(reversed(chunk) if turned else chunk), first=start + 1)
                Batches(session).add(batch_id, asked, [], ranks)
        with sessions.begin() as session:
            Batches(session).received(batch_id, "")

    def hand_in_all() -> None:
        together(*(lambda turned=turned: hand_in(turned) for turned in (False, True, False, True)))
        handed_in.set()

    def grade(worker: str) -> None:
        while grade_next(sessions, relu, worker) or not handed_in.wait(0.01):
            """Until everything is in and nothing waits."""

    together(hand_in_all, lambda: grade("v"), lambda: grade("w"))
    with sessions() as session:
        assert session.scalar(select(func.count()).select_from(Submission)) == 40
        for batch_id in ids:
            batch = Batches(session).get(batch_id)
            assert batch is not None
            assert (batch.state, batch.items, batch.last_place) == (BatchStatus.DONE, 40, 40)
            places = [item.place for item, _ in Batches(session).results(batch_id, 0, 100)]
            assert places == list(range(1, 41))


def test_the_same_code_as_source_and_as_something_else_is_not_shared(
    sessions: sessionmaker[Session], problems: dict[str, Problem]
) -> None:
    relu, other = problems["relu"], problems["softmax"]
    with sessions.begin() as session:
        batches = Batches(session)
        batch = batches.create()
        variants = [
            NewSubmission(relu, candidate(), "cpu", "smoke"),
            NewSubmission(other, candidate(), "cpu", "smoke"),
            NewSubmission(relu, candidate(), "cuda", "smoke"),
            NewSubmission(relu, candidate(), "cpu", "full"),
            NewSubmission(relu, candidate(), "cpu", "smoke", precision="bfloat16"),
            NewSubmission(relu, candidate(), "cpu", "smoke", require_gradients=True),
            NewSubmission(relu, candidate(), "cpu", "smoke", baseline="compile"),
            NewSubmission(relu, candidate(), "cpu", "smoke", limits={"call_s": 5}),
            NewSubmission(relu, candidate(), "cpu", "smoke", rules=Rules(languages=("cuda",))),
            NewSubmission(relu, candidate(), "cpu", "smoke", rules=Rules(forbidden_operators=("relu",))),
            NewSubmission(relu, candidate(), "cpu", "smoke", label="a", author="b"),
        ]
        asked = [BatchLine(number, new) for number, new in enumerate(variants, start=1)]
        batches.add(batch.id, asked, [], Ranks())
        assert batches.progress(batch).shared == 1
        assert len({item.submission_id for item in session.scalars(select(BatchItem))}) == 10


def test_everything_is_as_it_was_after_a_restart(
    settings: Settings, sessions: sessionmaker[Session], problems: dict[str, Problem]
) -> None:
    relu = problems["relu"]
    with sessions.begin() as session:
        batches = Batches(session)
        batch = batches.create(name="n")
        batches.add(batch.id, lines(relu, "a", "b", "c"), [LineError(4, "no")], Ranks())
        batches.received(batch.id, "")
    assert grade_next(sessions, relu, "w")
    with sessions.begin() as session:
        lost = Claims(session).claim_next("build", ["cpu"], "w", -1.0)
        assert lost is not None
    engine = create_engine_for(settings)
    again = session_factory(engine)
    with again.begin() as session:
        # Whoever had taken one up is gone; what is left is graded by others, and the batch ends.
        assert Claims(session).release_expired(max_attempts=3) == 1
    while grade_next(again, relu, "v"):
        """Until nothing waits."""
    with again() as session:
        found = Batches(session).get(batch.id)
        assert found is not None
        assert (found.state, found.errors) == (BatchStatus.DONE, 1)
        assert Batches(session).errors_of(batch.id, 10) == [LineError(4, "no")]
        assert [item.place for item, _ in Batches(session).results(batch.id, 1, 10)] == [2, 3]
        assert Batches(session).progress(found).verdicts == {"passed": 3}
    engine.dispose()


def test_nothing_comes_into_a_batch_that_was_cancelled(
    sessions: sessionmaker[Session], problems: dict[str, Problem]
) -> None:
    with sessions.begin() as session:
        batches = Batches(session)
        batch = batches.create(idempotency_key="k")
        batches.add(batch.id, lines(problems["relu"], "a"), [], Ranks())
        batches.cancel(batch.id)
    for late in (
        lambda batches: batches.add(batch.id, lines(problems["relu"], "b"), [], Ranks()),
        lambda batches: batches.received(batch.id, ""),
    ):
        with sessions() as session:
            try:
                late(Batches(session))
            except BatchClosed:
                continue
            raise AssertionError("it was taken in")
    with sessions() as session:
        assert Batches(session).by_key("k") is None
        assert [row.status for row in page_of_submissions(session).items] == ["cancelled"]


def test_a_batch_that_has_stopped_coming_in_makes_room_for_the_same_sent_anew(
    sessions: sessionmaker[Session], problems: dict[str, Problem]
) -> None:
    with sessions.begin() as session:
        batches = Batches(session)
        batch = batches.create(idempotency_key="k", webhook=("http://receiver/", "a shared secret"))
        batches.add(batch.id, lines(problems["relu"], "a"), [], Ranks())
        left = batches.take_over(batch.id)
        assert timedelta(seconds=10) < left <= timedelta(seconds=20)
        assert batches.by_key("k") is not None
        assert batches.take_over(batch.id, batch.heard_at + timedelta(seconds=20)) == timedelta()
        assert batches.by_key("k") is None
        found = batches.get(batch.id)
        assert found is not None
        assert (found.state, found.message) == (
            BatchStatus.CANCELLED, "it did not come in whole, and was sent anew"
        )  # fmt: skip
        # Nobody was given its id: of its end nobody is told.
        assert batches.webhook_of(batch.id) is None
        assert [row.status for row in page_of_submissions(session).items] == ["cancelled"]


@pytest.mark.parametrize("again", [True, False])
def test_a_batch_from_before_the_clock_was_set_back_holds_its_key_no_longer(
    sessions: sessionmaker[Session], again: bool
) -> None:
    with sessions.begin() as session:
        batches = Batches(session)
        batch = batches.create(idempotency_key="k")
        before = batch.heard_at - timedelta(days=1)
        if again:
            assert batches.take_over(batch.id, before) == timedelta()
        else:
            assert batches.cancel_abandoned(before) == 1
        assert batches.by_key("k") is None


def test_a_batch_that_is_in_is_taken_over_by_nobody(
    sessions: sessionmaker[Session], problems: dict[str, Problem]
) -> None:
    with sessions.begin() as session:
        batches = Batches(session)
        batch = batches.create(idempotency_key="k", webhook=("http://receiver/", "a shared secret"))
        batches.add(batch.id, lines(problems["relu"], "a"), [], Ranks())
        batches.received(batch.id, "")
        assert batches.take_over(batch.id, batch.heard_at + timedelta(hours=1)) == timedelta()
        assert batches.by_key("k") is not None
        batches.cancel(batch.id)
        assert batches.webhook_of(batch.id) is not None
