"""Who is taken up first: single submissions before batches, and batches in turn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from sqlalchemy import select
from sqlalchemy.orm import Session, sessionmaker

from evaluator.problem import Problem
from storage.batches import Batches, BatchLine
from storage.bells import Bell, take_announced
from storage.claims import Claims
from storage.models import Stage, Submission
from storage.order import QueueFull, refuse_if_full
from storage.sharing import Turns
from storage.submissions import NewSubmission, Submissions
from tests.storage.conftest import LEASE_S, Submit, candidate


@pytest.fixture
def hand_in(sessions: sessionmaker[Session], problems: dict[str, Problem]) -> Any:
    """Hands in a batch whose sources begin with its name."""

    def hand_in(name: str, count: int, device: str = "cpu") -> list[Bell]:
        lines = [
            BatchLine(
                number,
                NewSubmission(problems["relu"], candidate(f"{name}{number}"), device, "smoke", label=f"{name}{number}"),
            )
            for number in range(1, count + 1)
        ]
        with sessions.begin() as session:
            batches = Batches(session)
            batch = batches.create(name=name)
            batches.add(batch.id, lines, [], Turns())
            batches.received(batch.id, "")
            return [bell for bell in take_announced(session) if isinstance(bell, Bell)]

    return hand_in


def take(
    sessions: sessionmaker[Session],
    count: int,
    stage: Stage = "build",
    devices: Sequence[str] = ("cpu", "cuda"),
    *,
    at_once: bool = False,
) -> list[str]:
    """The labels of those that a worker takes up, one after another; those that it builds are built.

    ``at_once``: there is a device for each as soon as it is built.
    """
    labels = []
    for _ in range(count):
        with sessions.begin() as session:
            claim = Claims(session).claim_next(stage, devices, "w", LEASE_S)
            if claim is None:
                break
            labels.append(session.scalar(select(Submission.label).where(Submission.id == claim.submission_id)) or "")
            if stage == "build":
                assert Claims(session).record_built(claim, seconds=0.0, log="")
            if at_once:
                assert Claims(session).claim(claim.submission_id, "evaluate", "w", LEASE_S) is not None
    return labels


def test_a_single_submission_goes_before_every_batch(
    sessions: sessionmaker[Session], hand_in: Any, submit: Submit
) -> None:
    hand_in("a", 5)
    assert take(sessions, 2) == ["a1", "a2"]
    submit("x", label="single")
    submit("y", label="another")
    assert take(sessions, 3) == ["single", "another", "a3"]
    # The same where it waits for its device, after what is evaluated there at the moment.
    assert take(sessions, 4, "evaluate", ["cpu"]) == ["single", "another", "a1", "a2"]


def test_batches_take_turns_whenever_they_come_and_however_large_they_are(
    sessions: sessionmaker[Session], hand_in: Any
) -> None:
    hand_in("a", 50)
    assert take(sessions, 20, at_once=True) == [f"a{number}" for number in range(1, 21)]
    hand_in("b", 3)
    hand_in("c", 50)
    # Neither has the newer one to wait for the older, nor the older for the newer one to catch up.
    assert take(sessions, 10, at_once=True) == ["a21", "b1", "c1", "a22", "b2", "c2", "a23", "b3", "c3", "a24"]


def test_what_is_built_already_is_no_head_start(sessions: sessionmaker[Session], hand_in: Any) -> None:
    hand_in("a", 50)
    take(sessions, 20)
    hand_in("b", 3)
    assert take(sessions, 4) == ["b1", "b2", "b3", "a21"]
    assert take(sessions, 6, "evaluate", ["cpu"]) == ["a1", "b1", "a2", "b2", "a3", "b3"]


def test_kinds_of_devices_have_turns_of_their_own(sessions: sessionmaker[Session], hand_in: Any) -> None:
    hand_in("a", 20)
    take(sessions, 15, at_once=True)
    hand_in("g", 2, device="cuda")
    hand_in("b", 2)
    assert take(sessions, 4, devices=["cuda"]) == ["g1", "g2"]
    assert take(sessions, 4, devices=["cpu"]) == ["a16", "b1", "a17", "b2"]


def test_the_place_in_the_queue_follows_the_order(
    sessions: sessionmaker[Session], hand_in: Any, submit: Submit
) -> None:
    hand_in("a", 3)
    hand_in("b", 3)
    submit(label="single")
    with sessions() as session:
        submissions = Submissions(session)
        places = {row.label: submissions.queue_position(row) for row in submissions.page().items}
    assert places == {"single": 1, "a1": 2, "b1": 3, "a2": 4, "b2": 5, "a3": 6, "b3": 7}


def test_a_batch_rings_a_few_times_and_each_claim_rings_for_another(
    sessions: sessionmaker[Session], hand_in: Any
) -> None:
    bells = hand_in("a", 30)
    assert len(bells) == 8
    rung = {bell.submission_id for bell in bells}
    for _ in range(30):
        with sessions.begin() as session:
            assert Claims(session).claim_next("build", ["cpu", "cuda"], "w", LEASE_S) is not None
            rung |= {bell.submission_id for bell in take_announced(session) if isinstance(bell, Bell)}
    with sessions() as session:
        assert rung == set(session.scalars(select(Submission.id)))


def test_what_was_never_rung_for_is_found_by_the_reconciler(sessions: sessionmaker[Session], hand_in: Any) -> None:
    hand_in("a", 30)
    with sessions.begin() as session:
        bells = Claims(session).ring_overdue([("build", "cpu")])
        labels = [session.scalar(select(Submission.label).where(Submission.id == bell.submission_id)) for bell in bells]
    assert labels == [f"a{number}" for number in range(9, 21)]


def test_a_worker_passes_over_what_it_leaves_to_others(sessions: sessionmaker[Session], submit: Submit) -> None:
    from storage.workers import register

    first, second = submit("x"), submit("y")
    with sessions.begin() as session:
        for worker in ("w", "v"):
            register(session, worker, kind="build", queues=["build"], device=None, capabilities={})
        claim = Claims(session).claim_next("build", ["cpu"], "w", LEASE_S)
        assert claim is not None
        assert claim.submission_id == first
        assert Claims(session).record_fault(claim, "the builder died", retriable=True, max_attempts=3)
        session.execute(Submission.__table__.update().values(not_before=None))
        claim = Claims(session).claim_next("build", ["cpu"], "w", LEASE_S)
        assert claim is not None
        assert claim.submission_id == second
        assert Claims(session).claim_next("build", ["cpu"], "w", LEASE_S) is None
        claim = Claims(session).claim_next("build", ["cpu"], "v", LEASE_S)
        assert claim is not None
        assert claim.submission_id == first


def test_a_full_queue_of_batches_leaves_room_for_single_submissions(
    sessions: sessionmaker[Session], hand_in: Any, submit: Submit
) -> None:
    hand_in("a", 3)
    submit()
    with sessions() as session:
        refuse_if_full(session, 3, batched=True)
        refuse_if_full(session, 1, batched=False)
        with pytest.raises(QueueFull, match="it takes 2 submissions of batches"):
            refuse_if_full(session, 2, batched=True)
        with pytest.raises(QueueFull, match=r"it takes 0 submissions$"):
            refuse_if_full(session, 0, batched=False)
