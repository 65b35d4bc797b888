"""A submission goes only where it can run, and says so where that is nowhere."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import update
from sqlalchemy.orm import Session, sessionmaker

from storage.grading.claims import Claims
from storage.grading.diagnoses import evaluation_waits
from storage.models import Submission, WorkerState
from storage.queue import workers
from storage.queue.eligibility import DeviceCapabilities, Requirements, waiting_for
from storage.queue.wakeups import WakeUp, take_requested_wakeups
from storage.queue.workers import Condition, list_workers
from storage.submissions.submissions import Submissions
from tests.storage.conftest import LEASE_S, Submit

_GIB = 2**30
H200 = DeviceCapabilities("GPU-1", "NVIDIA H200", 141 * _GIB, 90)
T4 = DeviceCapabilities("GPU-2", "Tesla T4", 15 * _GIB, 75)


def built(sessions: sessionmaker[Session], submit: Submit, **changes: Any) -> str:
    """A submission on CUDA that waits to be evaluated."""
    submission_id = submit(f"# {changes}", **{"device": "cuda", **changes})
    with sessions.begin() as session:
        claims = Claims(session)
        claim = claims.claim(submission_id, "build", "builder", LEASE_S)
        assert claim is not None
        assert claims.record_built(claim, seconds=0.1, log="")
        take_requested_wakeups(session)
    return submission_id


def taken(sessions: sessionmaker[Session], device_capabilities: DeviceCapabilities | None) -> str | None:
    with sessions.begin() as session:
        claim = Claims(session).claim_next("evaluate", ["cuda"], "w", LEASE_S, device_capabilities)
        return None if claim is None else claim.submission_id


def serve(
    session: Session, worker: str, device_capabilities: DeviceCapabilities, condition: Condition | None = None
) -> None:
    capabilities = {
        "device_id": device_capabilities.device_id,
        "device_name": device_capabilities.device_name,
        "memory_bytes": device_capabilities.memory_bytes,
        "compute_capability": None
        if device_capabilities.capability is None
        else f"{device_capabilities.capability / 10:.1f}",
    }
    workers.register(
        session,
        worker,
        kind="evaluate",
        queues=["evaluate.cuda"],
        device="cuda:0",
        capabilities=capabilities,
        condition=condition,
    )


@pytest.mark.parametrize(
    "asked",
    [
        {"requirements": Requirements(device_name="NVIDIA H200")},
        {"requirements": Requirements(memory_bytes=40 * _GIB)},
        {"requirements": Requirements(capability=80)},
        {"precision": "bfloat16"},
    ],
)
def test_what_a_device_lacks_is_left_to_one_that_has_it(
    sessions: sessionmaker[Session], submit: Submit, asked: dict[str, Any]
) -> None:
    picky = built(sessions, submit, **asked)
    modest = built(sessions, submit)
    assert taken(sessions, T4) == modest
    assert taken(sessions, T4) is None
    assert taken(sessions, H200) == picky


def test_what_is_not_known_of_a_device_stands_in_nobodys_way_but_for_its_name(
    sessions: sessionmaker[Session], submit: Submit
) -> None:
    named = built(sessions, submit, requirements=Requirements(device_name="NVIDIA H200"))
    large = built(sessions, submit, requirements=Requirements(memory_bytes=40 * _GIB, capability=90))
    assert taken(sessions, DeviceCapabilities()) == large
    assert taken(sessions, DeviceCapabilities()) is None
    assert taken(sessions, None) == named


def test_what_waits_behind_many_that_cannot_run_here_is_found(sessions: sessionmaker[Session], submit: Submit) -> None:
    for number in range(25):
        built(sessions, submit, label=str(number), requirements=Requirements(device_name="NVIDIA H200"))
    last = built(sessions, submit)
    assert taken(sessions, T4) == last


def test_a_wakeup_that_a_worker_cannot_use_is_repeated_by_one_that_can(
    sessions: sessionmaker[Session], submit: Submit
) -> None:
    built(sessions, submit, requirements=Requirements(device_name="NVIDIA H200"))
    assert taken(sessions, T4) is None
    with sessions.begin() as session:
        claims = Claims(session)
        claims.notify_waiting([("evaluate", "cuda")], T4)
        assert take_requested_wakeups(session) == []
        claims.notify_waiting([("evaluate", "cuda")], H200)
        assert take_requested_wakeups(session) == [WakeUp("evaluate.cuda", if_empty=True)]


def test_an_attempt_says_on_which_device_it_was(sessions: sessionmaker[Session], submit: Submit) -> None:
    submission_id = built(sessions, submit)
    taken(sessions, H200)
    with sessions() as session:
        attempts = Submissions(session).attempts_of(submission_id)
    assert [(attempt.stage, attempt.device) for attempt in attempts] == [("build", None), ("evaluate", "GPU-1")]


def test_what_no_living_worker_can_run_says_whom_it_waits_for(sessions: sessionmaker[Session], submit: Submit) -> None:
    submission_id = built(sessions, submit, requirements=Requirements("NVIDIA H200", 100 * _GIB, 90))

    def missing(session: Session) -> str | None:
        submission = Submissions(session).get(submission_id)
        assert submission is not None
        return waiting_for("evaluate", submission, list_workers(session))

    whom = (
        "waiting for a worker for device cuda of the name NVIDIA H200 and with 100 GiB of memory "
        "and of compute capability 9.0 or more"
    )
    with sessions.begin() as session:
        assert missing(session) == f"{whom}: none is running"
        serve(session, "w1", T4)
        assert missing(session) == f"{whom}: none that is running can take it in float32 (running: Tesla T4)"
        serve(session, "w2", H200, Condition(WorkerState.OUT, "the self-test failed"))
        assert missing(session) == f"{whom}: w2 takes nothing (the self-test failed)"
        workers.heartbeat(session, "w2", None, Condition(WorkerState.READY))
        assert missing(session) is None


def test_a_worker_that_takes_nothing_serves_no_queue(sessions: sessionmaker[Session]) -> None:
    with sessions.begin() as session:
        serve(session, "w1", H200, Condition(WorkerState.UNHEALTHY, "it is 95 °C hot", ("Xid: no events",)))
        assert workers.serving_ids(session, "evaluate.cuda") == frozenset()
        (worker,) = list_workers(session)
        assert (worker.state, worker.reason, worker.unchecked) == (
            WorkerState.UNHEALTHY,
            "it is 95 °C hot",
            ("Xid: no events",),
        )
        workers.heartbeat(session, "w1", None)
        assert workers.serving_ids(session, "evaluate.cuda") == {"w1"}


def test_other_requirements_make_another_submission(sessions: sessionmaker[Session], submit: Submit) -> None:
    key = {"idempotency_key": "k", "requirements": Requirements(capability=90)}
    assert submit(**key) == submit(**key)
    with pytest.raises(ValueError, match="another submission"):
        submit(idempotency_key="k")


def test_a_submission_that_loses_every_worker_is_set_aside_with_the_reason(
    sessions: sessionmaker[Session], submit: Submit
) -> None:
    submission_id = submit()
    with sessions.begin() as session:
        claims = Claims(session)
        for worker in ("w1", "w2"):
            assert claims.claim(submission_id, "build", worker, -1.0) is not None
            assert claims.release_expired(max_attempts=2) == 1
        submission = Submissions(session).get(submission_id)
    assert submission is not None
    assert submission.status == "failed"
    assert submission.message == (
        "set aside, for 2 of 2 attempts lost their worker: worker w2 was lost: it stopped renewing its lease"
    )


def fault(
    sessions: sessionmaker[Session], submission_id: str, worker: str, device_capabilities: DeviceCapabilities
) -> None:
    with sessions.begin() as session:
        claims = Claims(session)
        claim = claims.claim(submission_id, "evaluate", worker, LEASE_S, device_capabilities)
        assert claim is not None
        assert claims.record_fault(claim, "the judge died", retriable=True, max_attempts=9)
        session.execute(update(Submission).values(not_before=None))


def test_after_a_fault_it_is_left_to_others_only_where_they_can_run_it(
    sessions: sessionmaker[Session], submit: Submit
) -> None:
    with sessions.begin() as session:
        serve(session, "large", H200)
        serve(session, "small", T4)
    picky = built(sessions, submit, requirements=Requirements(device_name="NVIDIA H200"))
    fault(sessions, picky, "large", H200)
    with sessions.begin() as session:
        assert Claims(session).claim(picky, "evaluate", "large", LEASE_S, H200) is not None
    modest = built(sessions, submit)
    fault(sessions, modest, "large", H200)
    with sessions.begin() as session:
        assert Claims(session).claim(modest, "evaluate", "large", LEASE_S, H200) is None
        assert Claims(session).claim(modest, "evaluate", "small", LEASE_S, T4) is not None


def test_what_nobody_can_run_holds_up_no_diagnosis(sessions: sessionmaker[Session], submit: Submit) -> None:
    with sessions.begin() as session:
        serve(session, "small", T4)
    built(sessions, submit, requirements=Requirements(device_name="NVIDIA H200"))
    with sessions() as session:
        assert not evaluation_waits(session)
    built(sessions, submit)
    with sessions() as session:
        assert evaluation_waits(session)
