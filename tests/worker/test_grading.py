"""Claim, build or evaluate, record: within one process."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import select
from sqlalchemy.exc import OperationalError
from sqlalchemy.exc import TimeoutError as NoConnection

from evaluator import logs
from evaluator.candidates.candidate import Candidate
from evaluator.config import TIERS, EvalConfig, SamplingPlan
from evaluator.engine import Callbacks
from evaluator.errors import EvaluationCancelled, InfrastructureFault
from evaluator.evaluation import Evaluation, Status
from evaluator.problems.problem import Problem
from evaluator.problems.vetting import REFUSALS, Label
from kerneljudge.terms.rules import Rules
from storage.batches.batches import Batches, BatchLine
from storage.grading.claims import Claims
from storage.leaderboards.read import BoardKey, leaderboard
from storage.models import Submission
from storage.problems import sync_problems
from storage.submissions.deduplication import Ranks
from storage.submissions.new_submission import NewSubmission
from storage.submissions.submissions import Submissions
from tests.storage.conftest import candidate
from tests.worker.conftest import Installation
from tests.worker.engines import ScriptedEngine
from tests.worker.tasks import WorkerTasks
from worker.device_gate import DeviceGate
from worker.reconciler import Reconciler

Install = Callable[..., Installation]


def grader(
    installation: Installation,
    *,
    device: str | None = "cpu",
    stopping: threading.Event | None = None,
    together: int = 1,
    gate: DeviceGate | None = None,
    lenient: bool = False,
) -> WorkerTasks:
    engine = ScriptedEngine(installation.settings.data_dir / "journal", together=together, lenient=lenient)
    engine.start()
    return WorkerTasks(installation, engine, device=device, stopping=stopping, gate=gate)


def test_a_submission_is_built_and_evaluated(install: Install) -> None:
    installation = install()
    submission_id = installation.submit(require_gradients=True)
    worker = grader(installation)
    worker.build()
    assert installation.read(submission_id).build_s == 0.25
    worker.evaluate()
    done = installation.read(submission_id)
    assert (done.status, done.attempts, done.message) == (Status.DONE, 1, "it passed")
    assert done.evaluation is not None
    assert done.evaluation.device == "cpu"
    assert worker.current_submission is None
    assert installation.journal[1:] == [
        "build cpu smoke True",
        "build done",
        "evaluate cpu smoke True",
        "evaluate done",
    ]


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[EvalConfig]:
    """The settings of each evaluation that a scripted engine makes from now on."""
    configs: list[EvalConfig] = []
    usual = ScriptedEngine.evaluate

    def evaluate(
        engine: ScriptedEngine, problem: Problem, given: Candidate, config: EvalConfig, callbacks: Callbacks
    ) -> Evaluation:
        configs.append(config)
        return usual(engine, problem, given, config, callbacks)

    monkeypatch.setattr(ScriptedEngine, "evaluate", evaluate)
    return configs


@pytest.mark.parametrize(
    ("machines", "asked", "call_s", "total_s"),
    [
        ("", {}, 60.0, 1800.0),
        ("", {"call_s": 5, "total_s": 90.5}, 5.0, 90.5),
        ("call_s=30", {"call_s": 120}, 30.0, 1800.0),
        ("call_s=30", {"total_s": 90}, 30.0, 90.0),
    ],
)
def test_a_submission_lowers_the_limits_of_the_machine_and_raises_none(
    install: Install,
    seen: list[EvalConfig],
    machines: str,
    asked: dict[str, float],
    call_s: float,
    total_s: float,
) -> None:
    installation = install(limits=machines)
    submission_id = installation.submit(limits=asked)
    worker = grader(installation)
    worker.build()
    worker.evaluate()
    assert installation.read(submission_id).status == Status.DONE
    assert {(config.limits.call_s, config.limits.total_s) for config in seen} == {(call_s, total_s)}


@pytest.mark.parametrize("tier", TIERS)
def test_a_tier_decides_how_much_is_timed(install: Install, seen: list[EvalConfig], tier: str) -> None:
    installation = install(compare_compiled=True)
    submission_id = installation.submit(tier=tier, size="full")
    worker = grader(installation)
    worker.build()
    worker.evaluate()
    assert installation.read(submission_id).status == Status.DONE
    (config,) = seen
    assert config.sampling == SamplingPlan.usual("cpu", "full", tier)
    assert config.compare_compiled is (tier == "full")
    assert config.sampling.trials == SamplingPlan.usual("cpu", "full").trials


def test_the_rules_of_a_submission_are_those_of_its_evaluation(install: Install, seen: list[EvalConfig]) -> None:
    installation = install()
    rules = Rules(languages=("cuda",), no_lower_precision=True)
    submission_id = installation.submit(rules=rules)
    worker = grader(installation)
    worker.build()
    worker.evaluate()
    assert installation.read(submission_id).status == Status.DONE
    assert [config.rules for config in seen] == [rules]


@pytest.mark.parametrize("source", ["# evaluate: sleep 0\n", "# evaluate: fault\n"])
def test_the_engine_starts_ahead_once_the_outcome_can_be_read(
    source: str, install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    installation = install(max_attempts=1)
    submission_id = installation.submit(source)
    seen: list[tuple[str, str]] = []

    def start_ahead(_engine: ScriptedEngine) -> None:
        row = installation.read(submission_id)
        seen.append((row.stage, row.status))

    monkeypatch.setattr(ScriptedEngine, "start_ahead", start_ahead)
    worker = grader(installation)
    worker.build()
    worker.evaluate()
    (_, queued), (_, over) = seen
    assert (queued, over in {Status.DONE, Status.FAILED}) == (Status.QUEUED, True)


@pytest.mark.parametrize("lenient", [False, True])
def test_a_problem_is_vetted_by_itself_with_what_passes_first(
    lenient: bool, install: Install, problems: dict[str, Problem]
) -> None:
    installation = install()
    unvetted = replace(problems["relu"], vettings=())
    with installation.sessions.begin() as session:
        sync_problems(session, {**problems, "relu": unvetted})
    worker = grader(installation, lenient=lenient)
    first, _, second = (installation.submit(source) for source in ("1", "# evaluate: overrun\n", "2"))
    for _ in range(3):
        worker.build()
    for _ in range(3):
        worker.evaluate()
    journal = installation.journal
    vetted = [number for number, line in enumerate(journal) if line == "vet"]
    assert len(vetted) > 10, "every trivial candidate was judged"
    assert vetted == list(range(vetted[0], vetted[0] + len(vetted))), "once"
    for submission_id in (first, second):
        evaluation = installation.read(submission_id).evaluation
        assert evaluation is not None
        assert evaluation.verdict == "passed"
        record = evaluation.to_evaluation()
        if lenient:
            assert (evaluation.speedup, evaluation.speedup_status) == (None, "not_vetted")
            assert (record.speedup, record.speedup_status) == (None, "not_vetted")
            assert REFUSALS[Label.ZEROS_PASS] in " ".join(record.notes)
        else:
            assert (evaluation.speedup, record.speedup, record.speedup_status) == (2.0, 2.0, "measured")
    with installation.sessions() as session:
        assert len(leaderboard(session, BoardKey("relu", "cpu", size="smoke"))) == (0 if lenient else 2)


def test_a_check_that_passes_has_its_problem_vetted_as_well(install: Install, problems: dict[str, Problem]) -> None:
    installation = install()
    with installation.sessions.begin() as session:
        sync_problems(session, {**problems, "relu": replace(problems["relu"], vettings=())})
    worker = grader(installation)
    submission_id = installation.submit("1", tier="check")
    worker.build()
    worker.evaluate()
    assert installation.read(submission_id).status == Status.DONE
    assert "vet" in installation.journal


def test_what_does_not_pass_has_no_problem_vetted(install: Install, problems: dict[str, Problem]) -> None:
    installation = install()
    with installation.sessions.begin() as session:
        sync_problems(session, {**problems, "relu": replace(problems["relu"], vettings=())})
    worker = grader(installation)
    submission_id = installation.submit("# evaluate: overrun\n")
    worker.build()
    worker.evaluate()
    assert installation.read(submission_id).status == Status.DONE
    assert "vet" not in installation.journal


def test_a_vetting_that_is_cut_short_is_made_with_the_next_try(
    install: Install, problems: dict[str, Problem], monkeypatch: pytest.MonkeyPatch
) -> None:
    installation = install(max_attempts=2)
    with installation.sessions.begin() as session:
        sync_problems(session, {**problems, "relu": replace(problems["relu"], vettings=())})
    worker = grader(installation)
    submission_id = installation.submit("1")
    worker.build()

    def broken(*_given: object) -> Evaluation:
        raise InfrastructureFault("the judge died")

    with monkeypatch.context() as patched:
        patched.setattr(ScriptedEngine, "_vet", broken)
        worker.evaluate()
    waiting = installation.read(submission_id)
    assert (waiting.status, waiting.evaluation) == (Status.QUEUED, None), "no figure without vetting"
    installation.end_backoff()
    worker.evaluate()
    evaluation = installation.read(submission_id).evaluation
    assert evaluation is not None
    assert evaluation.speedup == 2.0


def test_a_doubled_message_changes_nothing(install: Install) -> None:
    installation = install()
    installation.submit()
    worker = grader(installation)
    for _ in range(2):
        worker.build()
    for _ in range(2):
        worker.evaluate()
    assert installation.journal.count("build done") == 1
    assert installation.journal.count("evaluate done") == 1


def test_what_was_evaluated_just_now_decides_what_is_taken_up_next(
    install: Install, problems: dict[str, Problem]
) -> None:
    installation = install()
    names = ["relu", "softmax"] * 3
    lines = [
        BatchLine(number, NewSubmission(problems[name], candidate(str(number)), "cpu", "smoke"))
        for number, name in enumerate(names)
    ]
    with installation.sessions.begin() as session:
        batches = Batches(session)
        batches.add(batches.create(name="a").id, lines, [], Ranks())
    worker = grader(installation)
    for _ in names:
        worker.build()
    for _ in names:
        worker.evaluate()
    with installation.readers() as session:
        in_order = select(Submission.problem).where(Submission.status == Status.DONE).order_by(Submission.started_at)
        assert session.scalars(in_order).all() == ["relu"] * 3 + ["softmax"] * 3


def test_an_evaluation_uses_the_device_of_the_worker(install: Install) -> None:
    installation = install()
    installation.submit(device="cuda")
    grader(installation, device=None).build()
    grader(installation, device="cuda:1").evaluate()
    assert "build cuda smoke None" in installation.journal
    assert "evaluate cuda:1 smoke None" in installation.journal


def test_a_candidate_that_does_not_compile_never_reaches_a_device(install: Install) -> None:
    installation = install()
    submission_id = installation.submit("# build: refuse")
    worker = grader(installation)
    worker.build()
    worker.evaluate()
    done = installation.read(submission_id)
    assert (done.status, done.message) == (Status.DONE, "line 3: no")
    assert not any(line.startswith("evaluate") for line in installation.journal)


def test_a_fault_of_the_machine_is_retried_on_new_processes_and_then_fails(install: Install) -> None:
    installation = install(max_attempts=2)
    submission_id = installation.submit("# evaluate: fault")
    worker = grader(installation)
    worker.build()
    worker.evaluate()
    again = installation.read(submission_id)
    assert again.status == Status.QUEUED
    assert "the judge died" in again.message
    installation.end_backoff()
    worker.evaluate()
    failed = installation.read(submission_id)
    assert (failed.status, failed.message, failed.attempts) == (Status.FAILED, "the judge died", 2)
    assert installation.journal.count("close") == 2
    assert installation.journal.count("start") == 3


@pytest.mark.parametrize(("what", "reason"), [("device", "the device is gone"), ("toolchain", "no compiler")])
def test_what_another_machine_may_have_is_retried_and_then_fails(install: Install, what: str, reason: str) -> None:
    installation = install(max_attempts=2)
    submission_id = installation.submit(f"# evaluate: {what}")
    worker = grader(installation)
    worker.build()
    worker.evaluate()
    assert installation.read(submission_id).status == Status.QUEUED
    installation.end_backoff()
    worker.evaluate()
    failed = installation.read(submission_id)
    assert (failed.status, failed.message, failed.attempts) == (Status.FAILED, reason, 2)


def test_a_result_that_cannot_be_recorded_is_a_fault_with_its_reason(install: Install) -> None:
    installation = install(max_attempts=1)
    submission_id = installation.submit("# unstorable")
    worker = grader(installation)
    worker.build()
    worker.evaluate()
    failed = installation.read(submission_id)
    assert (failed.status, failed.evaluation) == (Status.FAILED, None)
    assert failed.message == "internal error: the result cannot be recorded: StatementError (the log has its text)"
    assert installation.outcomes(submission_id)[-1] == ("evaluate", "fault")


def test_a_result_waits_for_a_connection_to_the_database(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    installation = install(max_attempts=1)
    submission_id = installation.submit()
    worker = grader(installation)
    worker.build()
    record, busy = Claims.record_evaluation, iter([True])

    def recording(*args: Any, **options: Any) -> bool:
        if next(busy, False):
            raise NoConnection("QueuePool limit of size 5 overflow 10 reached")
        return record(*args, **options)

    monkeypatch.setattr(Claims, "record_evaluation", recording)
    worker.evaluate()
    assert next(busy, None) is None
    assert installation.outcomes(submission_id)[-1] == ("evaluate", "done")


@pytest.mark.parametrize("away_for", [2, 1000])
def test_a_worker_that_stops_with_its_database_waits_a_moment_to_give_its_claim_back(
    install: Install, monkeypatch: pytest.MonkeyPatch, away_for: int
) -> None:
    """As where everything is restarted at once: else the lease would expire, and the attempt count."""
    monkeypatch.setattr("worker.claim_handler._STOPPING_PATIENCE_S", 2.5)
    installation, stopping = install(), threading.Event()
    submission_id = installation.submit()
    worker = grader(installation, stopping=stopping)
    release, left = Claims.release, iter(range(away_for))

    def releasing(*args: Any) -> bool:
        if next(left, None) is not None:
            raise OperationalError("UPDATE", {}, Exception("the server is shutting down"))
        return release(*args)

    def building(*_: Any) -> Any:
        stopping.set()
        raise EvaluationCancelled

    monkeypatch.setattr(Claims, "release", releasing)
    monkeypatch.setattr(type(worker.handler.engine), "build", building)
    if away_for > 2:
        with pytest.raises(OperationalError):
            worker.build()
        return
    worker.build()
    assert installation.outcomes(submission_id) == [("build", "released")]


def test_holding_goes_on_after_an_error_that_nobody_expected(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    installation = install(lease_s=0.6)
    submission_id = installation.submit("# evaluate: sleep 1.5")
    worker = grader(installation)
    worker.build()
    renew, calls = Claims.renew, iter([True, True])
    about: set[str] = set()

    def failing(*args: Any) -> bool:
        about.add(logs.current_fields()["submission"])
        if next(calls, False):
            raise KeyError("surprise")
        return renew(*args)

    monkeypatch.setattr(Claims, "renew", failing)
    worker.evaluate()
    assert next(calls, None) is None
    assert about == {submission_id}, "what the keeper logs names it"
    assert installation.read(submission_id).status == Status.DONE


def test_what_does_not_fit_fails_at_once_with_the_figures(install: Install) -> None:
    installation = install()
    submission_id = installation.submit("# evaluate: big")
    worker = grader(installation)
    worker.build()
    worker.evaluate()
    failed = installation.read(submission_id)
    assert (failed.status, failed.message, failed.attempts) == (Status.FAILED, "needs 3 GiB, has 2 GiB", 1)
    # Nothing is wrong with the device or the processes.
    assert "close" not in installation.journal


def test_a_bug_of_ours_is_never_a_verdict(install: Install) -> None:
    installation = install(max_attempts=1)
    submission_id = installation.submit("# build: bug")
    grader(installation).build()
    failed = installation.read(submission_id)
    assert (failed.status, failed.evaluation) == (Status.FAILED, None)
    assert failed.message == "internal error: KeyError (the log has its text)"


def test_a_lease_is_renewed_and_progress_shown_while_it_is_worked_on(install: Install) -> None:
    installation = install(lease_s=2.4)  # a busy machine may be away for a second
    submission_id = installation.submit("# evaluate: sleep 4")
    worker = grader(installation)
    worker.build()
    task = threading.Thread(target=worker.evaluate)
    task.start()
    installation.wait(submission_id, Status.EVALUATING)
    assert worker.current_submission == submission_id
    reconciler = Reconciler(
        installation.settings,
        installation.sessions,
        worker="x",
        queues=[],
        current_submission=lambda: None,
        register=lambda _: None,
    )
    shown = set()
    while task.is_alive():
        reconciler.reconcile()
        shown.add(installation.read(submission_id).progress_message)
        time.sleep(0.1)
    done = installation.read(submission_id)
    assert (done.status, done.attempts) == (Status.DONE, 1)
    assert "asleep for 4 s" in shown
    assert done.progress_message is None


def test_a_cancelled_evaluation_is_stopped(install: Install) -> None:
    installation = install()
    submission_id = installation.submit("# evaluate: sleep 60")
    worker = grader(installation)
    worker.build()
    task = threading.Thread(target=worker.evaluate)
    task.start()
    installation.wait(submission_id, Status.EVALUATING)
    with installation.sessions.begin() as session:
        Submissions(session).cancel(submission_id)
    task.join(timeout=5)
    assert not task.is_alive()
    assert installation.read(submission_id).status == Status.CANCELLED
    assert installation.journal[-1] == "evaluate stopped"
    assert installation.outcomes(submission_id) == [("build", "built"), ("evaluate", "cancelled")]


@pytest.mark.parametrize("stage", ["build", "evaluate"])
def test_a_worker_that_is_stopped_gives_back_what_it_is_at(install: Install, stage: str) -> None:
    installation = install()
    submission_id = installation.submit(f"# {stage}: sleep 60")
    stopping = threading.Event()
    worker = grader(installation, stopping=stopping)
    if stage == "evaluate":
        worker.build()
    task = threading.Thread(target=getattr(worker, stage))
    task.start()
    installation.wait(submission_id, Status.BUILDING, Status.EVALUATING)
    stopping.set()
    task.join(timeout=5)
    assert not task.is_alive()
    given_back = installation.read(submission_id)
    assert (given_back.status, given_back.stage, given_back.faults) == (Status.QUEUED, stage, 0)
    assert installation.outcomes(submission_id)[-1] == (stage, "released")
    # Nothing more is taken up.
    getattr(worker, stage)()
    assert installation.read(submission_id).status == Status.QUEUED
