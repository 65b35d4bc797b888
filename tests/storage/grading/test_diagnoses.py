"""Diagnoses: after a device fault or on request, behind every evaluation, claimed once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import update
from sqlalchemy.orm import Session, sessionmaker

from evaluator.evaluation import Status, Verdict
from evaluator.problems.problem import Problem
from kerneljudge.terms.findings import Diagnosis, Fault, KernelCounters, Tool
from storage.grading.claims import Claims
from storage.grading.diagnoses import Diagnoses, DiagnosisClaim, NoDiagnosisWorker, NotDiagnosable
from storage.models import DiagnosisStatus, StoredDiagnosis, Submission
from storage.queue import workers
from storage.queue.wakeups import WakeUp, take_requested_wakeups
from storage.submissions.submissions import NotRetriable, Submissions, UnknownSubmission
from tests.storage.conftest import LEASE_S, Submit, candidate, passed
from tests.storage.grading.test_claims import built, claim, later, read

_WAKEUP = WakeUp("diagnose.compute-sanitizer")

FAULT = {"device_fault": "illegal memory access"}

Faulted = Callable[..., str]


def serve(sessions: sessionmaker[Session], *programs: str) -> None:
    """A worker with a CUDA device and these programs is alive."""
    queues = ["evaluate.cuda", *(f"diagnose.{program}" for program in programs)]
    with sessions.begin() as session:
        workers.register(session, "gpu", kind="evaluate", queues=queues, device="cuda:0", capabilities={})


@pytest.fixture
def faulted(sessions: sessionmaker[Session], submit: Submit, problems: dict[str, Problem]) -> Faulted:
    """Takes a submission for CUDA to a device fault; ``diagnose`` as the worker's setting says."""

    def faulted(*, diagnose: bool = True, **changes: Any) -> str:
        submission_id = submit(device="cuda", size="full")
        built(sessions, submission_id)
        work = claim(sessions, submission_id, "evaluate")
        values = {"verdict": Verdict.RUNTIME_ERROR, "speedup": None, "details": FAULT, "device": "cuda", **changes}
        with sessions.begin() as session:
            assert Claims(session).record_evaluation(work, passed(problems["relu"], **values), diagnose=diagnose)
        return submission_id

    return faulted


def stored(sessions: sessionmaker[Session], submission_id: str, tool: Tool = Tool.MEMCHECK) -> StoredDiagnosis:
    with sessions() as session:
        diagnosis = Diagnoses(session).of_tool(submission_id, tool)
    assert diagnosis is not None
    return diagnosis


def take(sessions: sessionmaker[Session], submission_id: str, worker: str = "gpu") -> DiagnosisClaim:
    with sessions.begin() as session:
        taken = Diagnoses(session).claim(submission_id, Tool.MEMCHECK, worker, LEASE_S)
    assert taken is not None
    return taken


def notified(sessions: sessionmaker[Session], *tools: Tool) -> list[WakeUp]:
    """The wake-ups that the reconciler of a worker with ``tools`` requests now."""
    with sessions.begin() as session:
        Diagnoses(session).notify_waiting(tools)
        return take_requested_wakeups(session)


def found(tool: Tool = Tool.MEMCHECK, **changes: Any) -> Diagnosis:
    values: dict[str, Any] = {"stage": "done", "seconds": 2.0, "printed": "it ran\n", **changes}
    return Diagnosis(tool, "relu", "cuda", "smoke", "float32", **values)


def test_a_device_fault_is_followed_by_a_diagnosis(sessions: sessionmaker[Session], faulted: Faulted) -> None:
    serve(sessions, "compute-sanitizer")
    submission_id = faulted()
    waiting = stored(sessions, submission_id)
    assert (waiting.state, waiting.attempts, waiting.result) == (DiagnosisStatus.PENDING, 0, None)
    done = read(sessions, submission_id)
    assert (done.status, done.message) == (Status.DONE, "outputs and gradients match")


@pytest.mark.parametrize(
    ("programs", "changes"),
    [
        ((), {}),
        (("ncu",), {}),
        (("compute-sanitizer",), {"diagnose": False}),
        (("compute-sanitizer",), {"details": {}}),
    ],
    ids=["nobody has the tool", "only the other tool", "switched off", "no device fault"],
)
def test_nothing_is_queued_that_nobody_asked_for_or_can_do(
    sessions: sessionmaker[Session], faulted: Faulted, programs: tuple[str, ...], changes: dict[str, Any]
) -> None:
    serve(sessions, *programs)
    submission_id = faulted(**changes)
    with sessions() as session:
        assert Diagnoses(session).of_submission(submission_id) == []


def test_verdict_and_diagnosis_come_with_one_commit(
    sessions: sessionmaker[Session], submit: Submit, problems: dict[str, Problem]
) -> None:
    serve(sessions, "compute-sanitizer")
    submission_id = submit(device="cuda")
    built(sessions, submission_id)
    work = claim(sessions, submission_id, "evaluate")
    evaluation = passed(problems["relu"], verdict=Verdict.RUNTIME_ERROR, speedup=None, details=FAULT)
    with sessions() as session:
        assert Claims(session).record_evaluation(work, evaluation, diagnose=True)
        assert take_requested_wakeups(session) == [_WAKEUP]
        session.rollback()
    with sessions() as session:
        assert Diagnoses(session).of_submission(submission_id) == []
    assert read(sessions, submission_id).status == Status.EVALUATING


def test_a_request_is_one_diagnosis_for_each_tool(sessions: sessionmaker[Session], faulted: Faulted) -> None:
    serve(sessions, "compute-sanitizer")
    submission_id = faulted()
    with sessions.begin() as session:
        diagnoses = Diagnoses(session)
        requested_at = diagnoses.request(submission_id, Tool.MEMCHECK).requested_at
        assert diagnoses.request(submission_id, Tool.RACECHECK).state is DiagnosisStatus.PENDING
        # The first was queued by the fault: asking for it changes nothing, and sends no wake-up.
        assert take_requested_wakeups(session) == [_WAKEUP]
        assert diagnoses.request(submission_id, Tool.MEMCHECK).requested_at == requested_at
        assert [row.tool for row in diagnoses.of_submission(submission_id)] == ["racecheck", "memcheck"]


def test_what_was_found_is_replaced_by_what_is_found_next(sessions: sessionmaker[Session], faulted: Faulted) -> None:
    serve(sessions, "compute-sanitizer")
    submission_id = faulted()
    work = take(sessions, submission_id)
    with sessions.begin() as session:
        assert Diagnoses(session).record(work, found())
    before = stored(sessions, submission_id)
    assert before.result is not None
    with sessions.begin() as session:
        again = Diagnoses(session).request(submission_id, Tool.MEMCHECK)
        assert (again.state, again.result, again.finished_at) == (DiagnosisStatus.PENDING, None, None)
        assert again.requested_at > before.requested_at
        assert take_requested_wakeups(session) == [_WAKEUP]
    assert take(sessions, submission_id).attempt == 1


def test_of_many_who_ask_at_once_one_sends_a_wakeup(sessions: sessionmaker[Session], faulted: Faulted) -> None:
    serve(sessions, "compute-sanitizer")
    submission_id = faulted(diagnose=False)
    notified: list[object] = []
    together = threading.Barrier(4)

    def ask() -> None:
        together.wait()
        with sessions.begin() as session:
            Diagnoses(session).request(submission_id, Tool.MEMCHECK)
            notified.extend(take_requested_wakeups(session))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert notified == [_WAKEUP]
    with sessions() as session:
        assert len(Diagnoses(session).of_submission(submission_id)) == 1


def test_what_cannot_be_diagnosed_is_refused_with_the_reason(
    sessions: sessionmaker[Session], submit: Submit, faulted: Faulted
) -> None:
    serve(sessions, "compute-sanitizer")
    broken, fit = faulted(verdict=Verdict.COMPILE_ERROR, details={}), faulted(diagnose=False)
    on_a_cpu, waiting = submit(), submit(device="cuda")
    with sessions.begin() as session:
        diagnoses = Diagnoses(session)
        for submission_id, reason in (
            (on_a_cpu, "is for device cpu"),
            (waiting, "is queued: only what was evaluated"),
            (broken, "its verdict is compile_error"),
        ):
            with pytest.raises(NotDiagnosable, match=reason):
                diagnoses.request(submission_id, Tool.MEMCHECK)
        with pytest.raises(UnknownSubmission):
            diagnoses.request("sub_none", Tool.MEMCHECK)
        with pytest.raises(NoDiagnosisWorker, match="no worker with a CUDA device and ncu is running"):
            diagnoses.request(fit, Tool.COUNTERS)
        assert diagnoses.of_submission(fit) == []


def test_a_claim_holds_all_that_is_needed_and_is_given_once(
    sessions: sessionmaker[Session], faulted: Faulted, problems: dict[str, Problem]
) -> None:
    serve(sessions, "compute-sanitizer")
    submission_id = faulted()
    work = take(sessions, submission_id)
    assert (work.problem, work.candidate) == (problems["relu"], candidate())
    assert (work.tool, work.size, work.precision, work.faulted) == (Tool.MEMCHECK, "full", "float32", True)
    assert stored(sessions, submission_id).state is DiagnosisStatus.RUNNING
    with sessions.begin() as session:
        diagnoses = Diagnoses(session)
        assert diagnoses.claim(submission_id, Tool.MEMCHECK, "other", LEASE_S) is None
        assert diagnoses.claim(submission_id, Tool.RACECHECK, "other", LEASE_S) is None
        assert diagnoses.claim("sub_none", Tool.MEMCHECK, "other", LEASE_S) is None


def test_an_evaluation_that_waits_goes_first(sessions: sessionmaker[Session], submit: Submit, faulted: Faulted) -> None:
    serve(sessions, "compute-sanitizer")
    diagnosed, first = faulted(), submit(device="cuda")
    # What is yet to be compiled, and what another kind of device is for, is no reason to wait.
    built(sessions, submit())
    assert notified(sessions, Tool.MEMCHECK) == [replace(_WAKEUP, if_empty=True)]
    built(sessions, first)
    assert notified(sessions, Tool.MEMCHECK) == []
    with sessions.begin() as session:
        assert Diagnoses(session).claim_next([Tool.MEMCHECK], "gpu", LEASE_S) is None
    claim(sessions, first, "evaluate")
    # The wake-up that was used up in vain is repeated.
    assert notified(sessions, Tool.MEMCHECK) == [replace(_WAKEUP, if_empty=True)]
    take(sessions, diagnosed)


@pytest.mark.parametrize("preempted", [True, False])
def test_what_is_given_back_is_notified_at_once_unless_an_evaluation_waits(
    sessions: sessionmaker[Session], submit: Submit, faulted: Faulted, preempted: bool
) -> None:
    serve(sessions, "compute-sanitizer")
    diagnosed = faulted()
    work = take(sessions, diagnosed)
    if preempted:
        built(sessions, submit(device="cuda"))
    with sessions.begin() as session:
        assert Diagnoses(session).release(work)
        assert take_requested_wakeups(session) == ([] if preempted else [_WAKEUP])
    given_back = stored(sessions, diagnosed)
    assert (given_back.state, given_back.faults, given_back.claim_token) == (DiagnosisStatus.PENDING, 0, None)


def test_only_queues_of_the_own_tools_are_notified(sessions: sessionmaker[Session], faulted: Faulted) -> None:
    serve(sessions, "compute-sanitizer")
    faulted()
    assert [notified(sessions, *tools) for tools in ((Tool.COUNTERS,), (), (Tool.RACECHECK,))] == [[], [], []]
    assert notified(sessions, Tool.MEMCHECK, Tool.RACECHECK) == [replace(_WAKEUP, if_empty=True)]


def test_the_diagnosis_that_was_requested_first_is_claimed_first(
    sessions: sessionmaker[Session], faulted: Faulted
) -> None:
    serve(sessions, "compute-sanitizer")
    first, second = faulted(), faulted()
    with sessions.begin() as session:
        diagnoses = Diagnoses(session)
        diagnoses.request(first, Tool.RACECHECK)
        claims = [diagnoses.claim_next([Tool.MEMCHECK, Tool.RACECHECK], "gpu", LEASE_S) for _ in range(4)]
        assert diagnoses.claim_next([], "gpu", LEASE_S) is None
    assert [claim and (claim.submission_id, claim.tool) for claim in claims] == [
        (first, Tool.MEMCHECK),
        (second, Tool.MEMCHECK),
        (first, Tool.RACECHECK),
        None,
    ]


def test_what_is_found_is_kept_whatever_is_in_it(sessions: sessionmaker[Session], faulted: Faulted) -> None:
    serve(sessions, "compute-sanitizer")
    submission_id = faulted()
    work = take(sessions, submission_id)
    diagnosis = found(
        faults=(Fault("Invalid\x00 write", "k\ud800", "cuda.cu", 8, 3, "x[i] = 0;", (1, 0, 0), (2, 0, 0)),),
        counters=(KernelCounters("k", duration_us=float("inf")),),
        stage="forward",
        printed="it\x00 ran\n",
    )
    with sessions.begin() as session:
        assert Diagnoses(session).record(work, diagnosis)
    with sessions() as session:
        row = session.get_one(StoredDiagnosis, (submission_id, "memcheck"))
        assert (row.state, row.message, row.printed) == (DiagnosisStatus.DONE, "", "it\N{REPLACEMENT CHARACTER} ran\n")
        assert row.result is not None
        assert "printed" not in row.result
        read_back = Diagnosis.from_dict({**row.result, "printed": row.printed})
        assert row.finished_at is not None
    assert read_back.faults[0].kernel == "k?"
    assert read_back.faults[0].thread == (1, 0, 0)
    assert read_back.counters[0].duration_us is None
    assert read(sessions, submission_id).status == Status.DONE


def test_a_fault_of_ours_is_retried_after_a_rest_and_then_failed(
    sessions: sessionmaker[Session], faulted: Faulted
) -> None:
    serve(sessions, "compute-sanitizer")
    submission_id = faulted()
    for number in (1, 2):
        work = take(sessions, submission_id)
        assert work.attempt == number
        with sessions.begin() as session:
            diagnoses = Diagnoses(session)
            assert diagnoses.record_fault(work, "the builder died", retriable=True, max_attempts=2)
            assert diagnoses.claim(submission_id, Tool.MEMCHECK, "gpu", LEASE_S) is None
        if number == 1:
            assert "attempt 1 failed, to be tried again: the builder died" in stored(sessions, submission_id).message
            with sessions.begin() as session:
                session.execute(update(StoredDiagnosis).values(not_before=None))
    failed = stored(sessions, submission_id)
    assert (failed.state, failed.message, failed.attempts) == (DiagnosisStatus.FAILED, "the builder died", 2)
    assert read(sessions, submission_id).status == Status.DONE
    # Asked for anew, it has all its attempts again.
    with sessions.begin() as session:
        Diagnoses(session).request(submission_id, Tool.MEMCHECK)
    assert take(sessions, submission_id).attempt == 1


@pytest.mark.parametrize("record", ["result", "fault", "release", "renew"])
def test_what_comes_from_a_worker_that_lost_its_lease_is_dropped(
    sessions: sessionmaker[Session], faulted: Faulted, record: str
) -> None:
    serve(sessions, "compute-sanitizer")
    submission_id = faulted()
    late = take(sessions, submission_id, "late")
    with sessions.begin() as session:
        assert Diagnoses(session).renew(late, LEASE_S, ("diagnosing", "size full", None))
    assert stored(sessions, submission_id).message == "size full"
    with sessions.begin() as session:
        assert Diagnoses(session).release_expired(3) == 0
        assert Diagnoses(session).release_expired(3, now=later(LEASE_S + 1)) == 1
        session.execute(update(StoredDiagnosis).values(not_before=None))
    assert "worker late was lost" in stored(sessions, submission_id).message
    take(sessions, submission_id, "next")
    with sessions.begin() as session:
        diagnoses = Diagnoses(session)
        calls: dict[str, Callable[[], bool]] = {
            "result": lambda: diagnoses.record(late, found()),
            "fault": lambda: diagnoses.record_fault(late, "x", retriable=True, max_attempts=3),
            "release": lambda: diagnoses.release(late),
            "renew": lambda: diagnoses.renew(late, LEASE_S, None),
        }
        assert not diagnoses.holds(late)
        assert calls[record]() is False
    now = stored(sessions, submission_id)
    assert (now.state, now.claim_worker, now.result) == (DiagnosisStatus.RUNNING, "next", None)


def test_what_is_done_with_the_submission_leaves_its_diagnosis_alone(
    sessions: sessionmaker[Session], faulted: Faulted
) -> None:
    serve(sessions, "compute-sanitizer")
    submission_id = faulted()
    with sessions.begin() as session:
        assert Submissions(session).cancel(submission_id).status == Status.DONE
        with pytest.raises(NotRetriable):
            Submissions(session).retry(submission_id)
    assert stored(sessions, submission_id).state is DiagnosisStatus.PENDING
    with sessions() as session:
        assert session.get_one(Submission, submission_id).evaluation is not None
    take(sessions, submission_id)
