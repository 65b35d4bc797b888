"""Puts submissions into a database the way workers do, without a worker."""

from __future__ import annotations

from typing import Any

from sqlalchemy import update
from sqlalchemy.orm import Session, sessionmaker

from evaluator.candidates.candidate import Candidate, InvalidSource, parse_candidate
from evaluator.evaluation import ErrorFigures, Evaluation, Gradients, Interval, Latency, SampleSeries, Verdict
from evaluator.problems.problem import Problem
from kerneljudge.terms.findings import Diagnosis, Tool
from storage.grading.claims import Claim, Claims
from storage.grading.diagnoses import Diagnoses
from storage.models import Submission
from storage.queue.workers import register
from storage.submissions.new_submission import NewSubmission
from storage.submissions.submissions import Submissions

LEASE_S = 60.0
SOURCE = "class ModelNew: ...\n"


def around(speedup: float | None) -> Interval | None:
    """An interval of 5 % on either side."""
    return None if speedup is None else Interval(0.95 * speedup, 1.05 * speedup)


def passed(problem: Problem, **changes: Any) -> Evaluation:
    """A passed evaluation on the CPU, twice as fast as the baseline."""
    series = SampleSeries((1.0,), (2.0,), (1.1,), (2.1,), ("ab",))
    values: dict[str, Any] = {
        "verdict": Verdict.PASSED,
        "message": "outputs and gradients match",
        "problem": problem.id,
        "problem_version": problem.version,
        "device": "cpu",
        "size": "smoke",
        "precision": "float32",
        "gradients": Gradients.MATCH,
        "speedup": 2.0,
        "speedup_interval": around(changes.get("speedup", 2.0)),
        "speedup_training": 1.5,
        "speedup_training_interval": Interval(1.4, 1.6),
        "latency_ms": Latency(1.0, 2.0, 1.1, 2.1),
        "latency_training_ms": Latency(2.0, 3.0, 2.1, 3.1),
        "errors": ErrorFigures(1e-7, 1e-6, 1e-6),
        "samples": {"inference": series},
        "log": "it ran\n",
        "environment": {"device_name": "a processor"},
        "peak_memory_bytes": 3 * 2**30,
    }
    return Evaluation(**{**values, **changes})


def failed(problem: Problem, verdict: Verdict, message: str, **changes: Any) -> Evaluation:
    """An evaluation that did not pass."""
    nothing = dict.fromkeys(
        ("speedup", "speedup_interval", "speedup_training", "speedup_training_interval", "latency_ms")
    )
    values = {"verdict": verdict, "message": message, "gradients": Gradients.NOT_CHECKED, **nothing, **changes}
    return passed(problem, latency_training_ms=None, **values)


class Seeds:
    """What would take an hour of grading, in a moment."""

    def __init__(self, sessions: sessionmaker[Session], problems: dict[str, Problem]) -> None:
        self.sessions = sessions
        self.problems = problems

    def submit(self, problem: str = "relu", source: str = SOURCE, **changes: Any) -> str:
        """A submission that waits; returns its id."""
        candidate: Candidate | InvalidSource = parse_candidate(code=source)
        values = {"problem": self.problems[problem], "candidate": candidate, "device": "cpu", "size": "smoke"}
        with self.sessions.begin() as session:
            return Submissions(session).submit(NewSubmission(**{**values, **changes})).id

    def claim_build(self, submission_id: str) -> Claim:
        """A builder takes it up."""
        with self.sessions.begin() as session:
            claim = Claims(session).claim(submission_id, "build", "builder", LEASE_S)
        assert claim is not None
        return claim

    def evaluate(self, submission_id: str, evaluation: Evaluation) -> str:
        """From the queue to ``evaluation``, which stands even where it is unsettled."""
        build = self.claim_build(submission_id)
        with self.sessions.begin() as session:
            claims = Claims(session)
            assert claims.record_built(build, seconds=0.25, log="compiled\n")
            claim = claims.claim(submission_id, "evaluate", "worker", LEASE_S)
            assert claim is not None
            assert claims.record_evaluation(claim, evaluation, diagnose=True, measure_again_s=())
        return submission_id

    def faulted(self, source: str = SOURCE, **changes: Any) -> str:
        """A submission for CUDA that ended with a device fault."""
        submission_id = self.submit(source=source, device="cuda", **changes)
        details = {"device_fault": "illegal memory access"}
        message = "CUDA error in kernel relu: illegal memory access"
        evaluation = failed(self.problems["relu"], Verdict.RUNTIME_ERROR, message, device="cuda", details=details)
        return self.evaluate(submission_id, evaluation)

    def request(self, submission_id: str, tool: Tool) -> None:
        """Somebody asks for a diagnosis."""
        with self.sessions.begin() as session:
            Diagnoses(session).request(submission_id, tool)

    def diagnose(self, submission_id: str, tool: Tool = Tool.MEMCHECK, **found: Any) -> None:
        """A worker takes up what was asked for, and finds it."""
        values = {"stage": "done", "seconds": 1.5, "printed": "it ran\n", **found}
        with self.sessions.begin() as session:
            diagnoses = Diagnoses(session)
            claim = diagnoses.claim(submission_id, tool, "worker", LEASE_S)
            assert claim is not None
            assert diagnoses.record(claim, Diagnosis(tool, "relu", "cuda", "smoke", "float32", **values))

    def passed(self, problem: str = "relu", source: str = SOURCE, **changes: Any) -> str:
        """A submission that passed. ``changes`` go to the submission, ``evaluation`` to the evaluation."""
        evaluation = changes.pop("evaluation", {})
        submission_id = self.submit(problem, source, **changes)
        return self.evaluate(submission_id, passed(self.problems[problem], **evaluation))

    def show(self, claim: Claim, stage: str, message: str, share: float | None) -> None:
        """The worker that holds ``claim`` says what it is at."""
        with self.sessions.begin() as session:
            assert Claims(session).renew(claim, LEASE_S, (stage, message, share))

    def fault(self, claim: Claim, detail: str, *, final: bool = False) -> None:
        """The worker that holds ``claim`` fails; ``final``: for the last time."""
        with self.sessions.begin() as session:
            assert Claims(session).record_fault(claim, detail, retriable=not final, max_attempts=3)

    def let_time_pass(self, submission_id: str) -> None:
        """Whatever ``submission_id`` has to wait for after a fault is over."""
        with self.sessions.begin() as session:
            session.execute(update(Submission).where(Submission.id == submission_id).values(not_before=None))

    def worker(self, name: str, kind: str, queue: str, device: str | None, **capabilities: Any) -> None:
        """A worker that lives."""
        with self.sessions.begin() as session:
            register(session, name, kind=kind, queues=[queue], device=device, capabilities=capabilities)

    def diagnosing_worker(self, *programs: str) -> None:
        """A worker that lives, with a CUDA device and these programs (default: ``compute-sanitizer``)."""
        queues = ["evaluate.cuda", *(f"diagnose.{program}" for program in programs or ("compute-sanitizer",))]
        with self.sessions.begin() as session:
            register(session, "gpu", kind="evaluate", queues=queues, device="cuda:0", capabilities={})
