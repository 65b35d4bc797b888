"""Who is taken up first: single submissions before batches, and batches in turn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import select, update
from sqlalchemy.orm import Session, sessionmaker

from evaluator.problem import Problem
from storage.batches import Batches, BatchLine
from storage.bells import Bell, take_announced
from storage.claims import Claims
from storage.models import Stage, Submission
from storage.order import LAST_TURN, Alike, QueueFull, Run, refuse_if_full
from storage.sharing import Turns
from storage.submissions import NewSubmission, Submissions
from tests.storage.conftest import LEASE_S, Submit, candidate


@pytest.fixture
def hand_in(sessions: sessionmaker[Session], problems: dict[str, Problem]) -> Any:
    """Hands in a batch whose sources begin with its name, for each of ``kinds`` of problems in turn."""

    def hand_in(name: str, count: int, device: str = "cpu", kinds: Sequence[str] = ("relu",)) -> list[Bell]:
        lines = [
            BatchLine(
                number,
                NewSubmission(
                    problems[kinds[(number - 1) % len(kinds)]],
                    candidate(f"{name}{number}"),
                    device,
                    "smoke",
                    label=f"{name}{number}",
                ),
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


def take_runs(sessions: sessionmaker[Session], count: int, run: Run) -> list[str]:
    """Likewise what a worker evaluates that prefers what is alike."""
    labels = []
    for _ in range(count):
        with sessions.begin() as session:
            claim = Claims(session).claim_next("evaluate", ["cpu"], "w", LEASE_S, alike=run.preferred)
            assert claim is not None
            run.goes_on_with(claim.alike)
            labels.append(session.scalar(select(Submission.label).where(Submission.id == claim.submission_id)) or "")
    return labels


def test_a_worker_goes_on_with_what_is_alike(sessions: sessionmaker[Session], hand_in: Any) -> None:
    hand_in("a", 9, kinds=["relu", "softmax", "gelu"])
    take(sessions, 9)
    assert take_runs(sessions, 9, Run()) == ["a1", "a4", "a7", "a2", "a5", "a8", "a3", "a6", "a9"]


def test_after_a_few_that_are_alike_it_is_the_turn_of_the_first(sessions: sessionmaker[Session], hand_in: Any) -> None:
    hand_in("a", 30)
    hand_in("b", 3, kinds=["softmax", "gelu"])
    take(sessions, 33)
    run = Run()
    # Eight in a row, then b's first, which has waited for longest; b's second is not like it, and a2 to a8 are gone.
    assert take_runs(sessions, 8, run) == [f"a{number}" for number in range(1, 9)]
    assert take_runs(sessions, 2, run) == ["b1", "b3"]
    assert take_runs(sessions, 9, run) == ["b2", *(f"a{number}" for number in range(9, 17))]


def test_nobody_is_overtaken_by_more_than_a_run(sessions: sessionmaker[Session], hand_in: Any) -> None:
    hand_in("a", 40, kinds=["relu", "softmax"])
    take(sessions, 40)
    run, taken = Run(), []
    while len(taken) < 40:
        taken += take_runs(sessions, 1, run)
        waiting = [number for number in range(1, 41) if f"a{number}" not in taken]
        overtaken_by = len(taken) - (waiting[0] - 1) if waiting else 0
        assert overtaken_by <= 7
    assert sorted(taken) == sorted(f"a{number}" for number in range(1, 41))


def test_nothing_that_is_alike_goes_before_a_single_one(
    sessions: sessionmaker[Session], hand_in: Any, submit: Submit, problems: dict[str, Problem]
) -> None:
    hand_in("a", 6, kinds=["relu", "softmax"])
    take(sessions, 6)
    run = Run()
    assert take_runs(sessions, 1, run) == ["a1"]
    submit("x", label="single", problem=problems["softmax"])
    take(sessions, 1)
    assert take_runs(sessions, 3, run) == ["single", "a2", "a4"]


def test_a_worker_that_prefers_something_takes_up_what_is_evaluated_again(
    sessions: sessionmaker[Session], hand_in: Any
) -> None:
    """It has the last turn that a database's integer can be."""
    hand_in("a", 1)
    take(sessions, 1)
    run = Run()
    assert take_runs(sessions, 1, run) == ["a1"]
    hand_in("b", 2, kinds=["softmax", "relu"])
    take(sessions, 2)
    with sessions.begin() as session:
        session.execute(update(Submission).where(Submission.label.in_(["b1", "b2"])).values(turn=LAST_TURN))
    assert take_runs(sessions, 2, run) == ["b1", "b2"]


@pytest.mark.parametrize("other", [{"size": "full"}, {"precision": "float16"}, {"require_gradients": True}])
def test_what_is_measured_otherwise_is_not_alike(sessions: sessionmaker[Session], other: dict[str, Any]) -> None:
    usual = {"problem": "relu", "problem_version": "1", "size": "smoke", "precision": "float32"}
    kind = Alike(**usual, baseline="eager", require_gradients=None)
    run = Run()
    run.goes_on_with(kind)
    run.goes_on_with(kind)
    assert (run.preferred, run.length) == (kind, 2)
    run.goes_on_with(replace(kind, **other))
    assert (run.preferred, run.length) == (replace(kind, **other), 1)


def test_who_is_far_from_his_turn_does_not_go_before_it(sessions: sessionmaker[Session], hand_in: Any) -> None:
    hand_in("a", 270, kinds=["relu", *["softmax"] * 260])
    take(sessions, 270)
    run = Run()
    assert take_runs(sessions, 2, run) == ["a1", "a2"]  # a262 is like a1, and 260 turns behind a2


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
