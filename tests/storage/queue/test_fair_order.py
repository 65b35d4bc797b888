"""Who is taken up first: single submissions before batches, and batches in turn."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import select, update
from sqlalchemy.orm import Session, sessionmaker

from evaluator.problems.problem import Problem
from storage.batches.batches import Batches, BatchLine
from storage.grading.claims import Claims
from storage.models import Stage, Submission, WorkerState
from storage.problems import sync_problems
from storage.queue.fair_order import LAST_RANK, AffinityStreak, GradingKey, QueueFull, refuse_if_full
from storage.queue.wakeups import WakeUp, take_requested_wakeups
from storage.queue.workers import Condition, register
from storage.submissions.deduplication import Ranks
from storage.submissions.listing import page_of_submissions, queue_position
from storage.submissions.new_submission import NewSubmission
from storage.submissions.submissions import Submissions
from tests.storage.conftest import LEASE_S, Submit, candidate


@pytest.fixture
def hand_in(sessions: sessionmaker[Session], problems: dict[str, Problem]) -> Any:
    """Hands in a batch whose sources begin with its name, for each of ``kinds`` of problems in turn."""

    def hand_in(name: str, count: int, device: str = "cpu", kinds: Sequence[str] = ("relu",)) -> list[WakeUp]:
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
            batches.add(batch.id, lines, [], Ranks())
            batches.received(batch.id, "")
            return take_requested_wakeups(session)

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


def take_runs(sessions: sessionmaker[Session], count: int, run: AffinityStreak) -> list[str]:
    """Likewise what a worker evaluates that prefers what is alike."""
    labels = []
    for _ in range(count):
        with sessions.begin() as session:
            claim = Claims(session).claim_next("evaluate", ["cpu"], "w", LEASE_S, affinity=run.preferred)
            assert claim is not None
            run.note_claim(claim.affinity)
            labels.append(session.scalar(select(Submission.label).where(Submission.id == claim.submission_id)) or "")
    return labels


def take_together(sessions: sessionmaker[Session], most: int, worker: str = "w") -> list[str]:
    """The labels of those that a worker takes up to evaluate them together; none where nothing waits."""
    with sessions.begin() as session:
        claims = Claims(session)
        first = claims.claim_next("evaluate", ["cpu"], worker, LEASE_S)
        if first is None:
            return []
        taken = [first, *claims.claim_with_affinity(first, most - 1, LEASE_S)]
        assert len({claim.token for claim in taken}) == len(taken)
        return [session.get_one(Submission, claim.submission_id).label or "" for claim in taken]


def serve(
    sessions: sessionmaker[Session], *workers: str, device: str = "cpu", state: WorkerState = WorkerState.READY
) -> None:
    """These workers are alive and evaluate."""
    with sessions.begin() as session:
        for worker in workers:
            register(
                session,
                worker,
                kind="evaluate",
                queues=[f"evaluate.{device}"],
                device=device,
                capabilities={},
                condition=Condition(state),
            )


def change(sessions: sessionmaker[Session], label: str, **values: Any) -> None:
    with sessions.begin() as session:
        session.execute(update(Submission).where(Submission.label == label).values(**values))


def test_a_worker_goes_on_with_what_is_alike(sessions: sessionmaker[Session], hand_in: Any) -> None:
    hand_in("a", 9, kinds=["relu", "softmax", "gelu"])
    take(sessions, 9)
    assert take_runs(sessions, 9, AffinityStreak()) == ["a1", "a4", "a7", "a2", "a5", "a8", "a3", "a6", "a9"]


def test_after_a_few_that_are_alike_it_is_the_turn_of_the_first(sessions: sessionmaker[Session], hand_in: Any) -> None:
    hand_in("a", 30)
    hand_in("b", 3, kinds=["softmax", "gelu"])
    take(sessions, 33)
    run = AffinityStreak()
    # Eight in a row, then b's first, which has waited for longest; b's second is not like it, and a2 to a8 are gone.
    assert take_runs(sessions, 8, run) == [f"a{number}" for number in range(1, 9)]
    assert take_runs(sessions, 2, run) == ["b1", "b3"]
    assert take_runs(sessions, 9, run) == ["b2", *(f"a{number}" for number in range(9, 17))]


def test_nobody_is_overtaken_by_more_than_a_run(sessions: sessionmaker[Session], hand_in: Any) -> None:
    hand_in("a", 40, kinds=["relu", "softmax"])
    take(sessions, 40)
    run, taken = AffinityStreak(), []
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
    run = AffinityStreak()
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
    run = AffinityStreak()
    assert take_runs(sessions, 1, run) == ["a1"]
    hand_in("b", 2, kinds=["softmax", "relu"])
    take(sessions, 2)
    with sessions.begin() as session:
        session.execute(update(Submission).where(Submission.label.in_(["b1", "b2"])).values(queue_rank=LAST_RANK))
    assert take_runs(sessions, 2, run) == ["b1", "b2"]


@pytest.mark.parametrize(
    "other",
    [
        {"size": "full"},
        {"precision": "float16"},
        {"require_gradients": True},
        {"limits": "call_s=5"},
        {"tier": "quick"},
        {"rules": "languages=cuda"},
    ],
)
def test_what_is_measured_otherwise_is_not_alike(sessions: sessionmaker[Session], other: dict[str, Any]) -> None:
    usual = {"problem": "relu", "problem_version": "1", "size": "smoke", "precision": "float32"}
    kind = GradingKey(**usual, baseline="eager", require_gradients=None, limits="", tier="full", rules="")
    run = AffinityStreak()
    run.note_claim(kind)
    run.note_claim(kind)
    assert (run.preferred, run.length) == (kind, 2)
    run.note_claim(replace(kind, **other))
    assert (run.preferred, run.length) == (replace(kind, **other), 1)


def test_what_is_alike_is_taken_up_together_in_the_order_of_the_queue(
    sessions: sessionmaker[Session], hand_in: Any
) -> None:
    hand_in("a", 9, kinds=["relu", "softmax", "gelu"])
    take(sessions, 9)
    assert take_together(sessions, 2) == ["a1", "a4"]
    assert take_together(sessions, 8) == ["a2", "a5", "a8"]
    assert take_together(sessions, 1) == ["a3"]
    assert take_together(sessions, 8) == ["a6", "a9"]
    assert take_together(sessions, 8) == ["a7"]
    assert take_together(sessions, 8) == []


def test_each_that_is_taken_up_together_is_a_claim_of_its_own(sessions: sessionmaker[Session], hand_in: Any) -> None:
    hand_in("a", 3)
    take(sessions, 3)
    with sessions.begin() as session:
        first = Claims(session).claim_next("evaluate", ["cpu"], "w", LEASE_S)
        assert first is not None
        second, third = Claims(session).claim_with_affinity(first, 7, LEASE_S)
    assert {(each.worker, each.stage, each.attempt) for each in (first, second, third)} == {("w", "evaluate", 1)}
    assert (second.problem, second.affinity) == (first.problem, first.affinity)
    assert (second.candidate.source, third.candidate.source) == ("a2", "a3")
    with sessions.begin() as session:
        assert Claims(session).release(second, "the other failed")
        assert not Claims(session).holds(second)
        assert Claims(session).holds(third)
        attempts = Submissions(session).attempts_of(second.submission_id)
    assert [(each.stage, each.outcome, each.detail) for each in attempts] == [
        ("build", "built", ""),
        ("evaluate", "released", "the other failed"),
    ]


@pytest.mark.parametrize(
    "other",
    [
        {"size": "full"},
        {"precision": "float16"},
        {"baseline": "compile"},
        {"require_gradients": True},
        {"device": "cuda"},
    ],
)
def test_only_what_is_measured_in_the_same_way_is_taken_up_together(
    sessions: sessionmaker[Session], hand_in: Any, other: dict[str, Any]
) -> None:
    hand_in("a", 4)
    take(sessions, 4)
    for label in ("a2", "a4"):
        change(sessions, label, **other)
    assert take_together(sessions, 8) == ["a1", "a3"]


def test_versions_of_a_problem_are_not_taken_up_together(
    sessions: sessionmaker[Session], hand_in: Any, problems: dict[str, Problem]
) -> None:
    edited = replace(problems["relu"], source=problems["relu"].source + "# edited\n")
    with sessions.begin() as session:
        sync_problems(session, {"relu": edited})
    hand_in("a", 4)
    take(sessions, 4)
    for label in ("a1", "a3"):
        change(sessions, label, problem_version=edited.version)
    assert take_together(sessions, 8) == ["a1", "a3"]
    assert take_together(sessions, 8) == ["a2", "a4"]


def test_a_single_submission_is_taken_up_alone(sessions: sessionmaker[Session], hand_in: Any, submit: Submit) -> None:
    submit("x", label="single")
    submit("y", label="another")
    hand_in("a", 3)
    take(sessions, 5)
    assert take_together(sessions, 8) == ["single"]
    assert take_together(sessions, 8) == ["another"]
    assert take_together(sessions, 8) == ["a1", "a2", "a3"]


def test_nothing_more_is_taken_up_once_a_single_one_waits(
    sessions: sessionmaker[Session], hand_in: Any, submit: Submit
) -> None:
    hand_in("a", 3)
    take(sessions, 3)
    with sessions.begin() as session:
        first = Claims(session).claim_next("evaluate", ["cpu"], "w", LEASE_S)
        assert first is not None
    submit("x", label="single")
    take(sessions, 1)
    with sessions.begin() as session:
        assert Claims(session).claim_with_affinity(first, 7, LEASE_S) == []
    assert take_together(sessions, 8) == ["single"]
    assert take_together(sessions, 8) == ["a2", "a3"]


def test_what_is_evaluated_again_is_taken_up_alone(sessions: sessionmaker[Session], hand_in: Any) -> None:
    hand_in("a", 5)
    take(sessions, 5)
    for label in ("a2", "a4"):
        change(sessions, label, queue_rank=LAST_RANK)
    with sessions.begin() as session:
        again = session.scalars(select(Submission.id).where(Submission.label == "a2")).one()
        claim = Claims(session).claim(again, "evaluate", "w", LEASE_S)
        assert claim is not None
        assert Claims(session).claim_with_affinity(claim, 7, LEASE_S) == []
    assert take_together(sessions, 8) == ["a1", "a3", "a5"]
    assert take_together(sessions, 8) == ["a4"]


def test_what_has_had_a_fault_is_taken_up_alone(sessions: sessionmaker[Session], hand_in: Any) -> None:
    hand_in("a", 5)
    take(sessions, 5)
    for label in ("a1", "a3"):
        change(sessions, label, faults=1)
    assert take_together(sessions, 8) == ["a1"]
    assert take_together(sessions, 8) == ["a2", "a4", "a5"]
    assert take_together(sessions, 8) == ["a3"]


def test_what_rests_or_is_far_from_its_turn_is_not_taken_up_with_others(
    sessions: sessionmaker[Session], hand_in: Any
) -> None:
    hand_in("a", 5, kinds=["relu", "softmax", "relu", "relu", "relu"])
    take(sessions, 5)
    change(sessions, "a3", not_before=datetime.now(UTC) + timedelta(minutes=1))
    with sessions.begin() as session:
        queue_rank = session.scalars(select(Submission.queue_rank).where(Submission.label == "a2")).one()
    change(sessions, "a4", queue_rank=queue_rank + 256)
    change(sessions, "a5", queue_rank=queue_rank + 257)
    assert take_together(sessions, 8) == ["a1", "a4"]


def test_workers_share_what_waits(sessions: sessionmaker[Session], hand_in: Any) -> None:
    serve(sessions, "w", "v")
    hand_in("a", 9)
    take(sessions, 9)
    assert take_together(sessions, 8, "w") == ["a1", "a2", "a3", "a4", "a5"]
    assert take_together(sessions, 8, "v") == ["a6", "a7"]
    hand_in("b", 100)
    take(sessions, 100)
    assert len(take_together(sessions, 8, "w")) == 8


def test_other_work_for_the_others_is_enough(sessions: sessionmaker[Session], hand_in: Any) -> None:
    serve(sessions, "w", "v")
    hand_in("a", 8, kinds=["relu", "softmax"])
    take(sessions, 8)
    assert take_together(sessions, 8, "w") == ["a1", "a3", "a5", "a7"]
    assert take_together(sessions, 8, "v") == ["a2", "a4"]


def test_nothing_is_left_to_workers_that_could_not_take_it(sessions: sessionmaker[Session], hand_in: Any) -> None:
    serve(sessions, "w")
    serve(sessions, "on another device", device="cuda")
    serve(sessions, "unfit", state=WorkerState.OUT)
    hand_in("a", 4)
    take(sessions, 4)
    assert take_together(sessions, 8) == ["a1", "a2", "a3", "a4"]


def test_of_many_workers_that_take_up_several_at_a_time_each_is_one_s(
    sessions: sessionmaker[Session], hand_in: Any
) -> None:
    names = ["u", "v", "w"]
    serve(sessions, *names)
    hand_in("a", 60, kinds=["relu", "softmax"])
    take(sessions, 60)
    together = threading.Barrier(len(names))

    def work(name: str) -> list[list[str]]:
        together.wait()
        taken = []
        while group := take_together(sessions, 8, name):
            taken.append(group)
        return taken

    with ThreadPoolExecutor(len(names)) as threads:
        groups = [group for taken in threads.map(work, names) for group in taken]
    assert sorted(label for group in groups for label in group) == sorted(f"a{number}" for number in range(1, 61))
    for group in groups:
        assert len({int(label[1:]) % 2 for label in group}) == 1
    assert max(len(group) for group in groups) == 8


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
def test_who_takes_up_several_waits_for_nobody(sessions: sessionmaker[Session], hand_in: Any) -> None:
    """Two that wait for each other would be a deadlock. (SQLite has one that writes at a time.)"""
    hand_in("a", 6)
    take(sessions, 6)
    with ThreadPoolExecutor(1) as threads, sessions.begin() as session:
        claims = Claims(session)
        first = claims.claim_next("evaluate", ["cpu"], "w", LEASE_S)
        assert first is not None
        assert len(claims.claim_with_affinity(first, 2, LEASE_S)) == 2

        def take_fourth() -> int:
            with sessions.begin() as other:
                fourth = other.scalars(select(Submission.id).where(Submission.label == "a4")).one()
                claim = Claims(other).claim(fourth, "evaluate", "v", LEASE_S)
                assert claim is not None
                return len(Claims(other).claim_with_affinity(claim, 7, LEASE_S))

        assert threads.submit(take_fourth).result(timeout=10) == 2


def test_what_is_taken_up_together_counts_as_that_many_of_a_run() -> None:
    kind = GradingKey("relu", "1", "smoke", "float32", "eager", None, "", "full", "")
    run = AffinityStreak()
    assert run.remaining_for(kind) == 8
    run.note_claim(kind, 3)
    assert (run.remaining_for(kind), run.remaining_for(replace(kind, problem="softmax"))) == (5, 8)
    run.note_claim(kind)
    assert run.remaining_for(kind) == 4
    run.note_claim(kind, 4)
    # It is the turn of whatever is first: where that is alike again, another run begins.
    assert (run.preferred, run.remaining_for(kind)) == (None, 8)
    run.note_claim(kind, 2)
    assert (run.preferred, run.remaining_for(kind)) == (kind, 6)


def test_who_is_far_from_his_turn_does_not_go_before_it(sessions: sessionmaker[Session], hand_in: Any) -> None:
    hand_in("a", 270, kinds=["relu", *["softmax"] * 260])
    take(sessions, 270)
    run = AffinityStreak()
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
        places = {row.label: queue_position(session, row) for row in page_of_submissions(session).items}
    assert places == {"single": 1, "a1": 2, "b1": 3, "a2": 4, "b2": 5, "a3": 6, "b3": 7}


def test_a_batch_sends_a_few_wakeups_and_each_claim_may_send_another(
    sessions: sessionmaker[Session], hand_in: Any
) -> None:
    assert hand_in("a", 30) == [WakeUp("build")] * 8
    for left in reversed(range(30)):
        with sessions.begin() as session:
            assert Claims(session).claim_next("build", ["cpu", "cuda"], "w", LEASE_S) is not None
            assert take_requested_wakeups(session) == [WakeUp("build", if_empty=True)] * (left > 0)


def test_a_worker_passes_over_what_it_leaves_to_others(sessions: sessionmaker[Session], submit: Submit) -> None:
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
