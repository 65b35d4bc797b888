"""Rows and domain objects as the records that go over the wire."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from api.schemas import (
    IntervalRecord,
    LeaderboardEntry,
    LinkRecord,
    ProblemRecord,
    ProblemSummary,
    ProgressRecord,
    SubmissionRecord,
    TimelineRecord,
    WorkerRecord,
)
from evaluator.config import PRECISIONS
from evaluator.evaluation import ErrorFigures, Evaluation, Interval
from evaluator.problem import Problem
from storage.leaderboard import Entry
from storage.models import Submission
from storage.submissions import Submissions
from storage.workers import Worker

__all__ = [
    "leaderboard_entry",
    "problem_record",
    "problem_summary",
    "submission_record",
    "with_queue_position",
    "worker_record",
]

_FROM_EVALUATION = (
    "gradients",
    "speedup",
    "speedup_interval",
    "speedup_training",
    "speedup_training_interval",
    "speedup_compiled",
    "latency_ms",
    "latency_training_ms",
    "roofline_share",
    "peak_memory_bytes",
)


def submission_record(submission: Submission, queue_position: int | None = None) -> SubmissionRecord:
    """The record of ``submission``, with its evaluation if it has one."""
    stored = submission.evaluation
    evaluation = None if stored is None else stored.to_evaluation()
    plain = {} if evaluation is None else evaluation.to_dict()
    return SubmissionRecord.model_validate(
        {
            "id": submission.id,
            "status": submission.state,
            "verdict": plain.get("verdict"),
            "problem": submission.problem,
            "problem_version": submission.problem_version,
            "device": submission.device,
            "size": submission.size,
            "precision": submission.precision,
            "baseline": submission.baseline,
            "require_gradients": submission.require_gradients,
            "label": submission.label,
            "author": submission.author,
            **{name: plain.get(name) for name in _FROM_EVALUATION},
            "errors": plain.get("errors") or asdict(ErrorFigures()),
            "message": submission.message,
            "hints": list(plain.get("hints", ())),
            "notes": list(plain.get("notes", ())),
            "details": plain.get("details", {}),
            "queue_position": queue_position,
            "attempts": submission.attempts,
            "progress": _progress(submission),
            "timeline": TimelineRecord(
                submitted=submission.submitted_at,
                built=submission.built_at,
                started=submission.started_at,
                finished=submission.finished_at,
            ),
            "stage_s": _stage_s(submission, evaluation),
            "environment": plain.get("environment", {}),
            "links": submission_links(submission.id),
        }
    )


def with_queue_position(submissions: Submissions, submission: Submission) -> SubmissionRecord:
    """The record of ``submission`` with its place in the queue, if it waits in one."""
    return submission_record(submission, submissions.queue_position(submission))


def submission_links(submission_id: str) -> LinkRecord:
    """Where everything about a submission is."""
    base = f"/api/v1/submissions/{submission_id}"
    return LinkRecord(
        self=base,
        source=f"{base}/source",
        log=f"{base}/log",
        events=f"{base}/events",
        page=f"/submissions/{submission_id}",
    )


def problem_summary(problem: Problem) -> ProblemSummary:
    """``problem`` without its source."""
    return ProblemSummary.model_validate(_problem_fields(problem))


def problem_record(problem: Problem) -> ProblemRecord:
    """``problem`` with its source."""
    return ProblemRecord.model_validate({**_problem_fields(problem), "reference": problem.source})


def leaderboard_entry(entry: Entry, speedup_training: float | None) -> LeaderboardEntry:
    """``entry`` with the speedup of the other track beside its own."""
    return LeaderboardEntry(
        rank=entry.rank,
        submission=entry.submission_id,
        author=entry.author,
        label=entry.label,
        speedup=entry.speedup,
        speedup_interval=_interval(entry.speedup_interval),
        speedup_training=speedup_training,
        latency_ms=entry.latency_ms,
        baseline_ms=entry.baseline_ms,
        gradients=entry.gradients,
        device="cuda" if entry.device == "cuda" else "cpu",
        device_name=entry.device_name,
        source_digest=entry.source_digest,
        submitted=entry.submitted_at,
        finished=entry.finished_at,
    )


def worker_record(worker: Worker) -> WorkerRecord:
    """``worker`` as it was last heard of."""
    return WorkerRecord(
        id=worker.id,
        kind=worker.kind,
        alive=worker.alive,
        queues=list(worker.queues),
        device=worker.device,
        capabilities=dict(worker.capabilities),
        current_submission=worker.current_submission,
        started=worker.started_at,
        heartbeat=worker.heartbeat_at,
    )


def _interval(interval: Interval | None) -> IntervalRecord | None:
    return None if interval is None else IntervalRecord(**asdict(interval))


def _progress(submission: Submission) -> ProgressRecord | None:
    if submission.progress_stage is None or submission.state.final:
        return None
    return ProgressRecord(
        stage=submission.progress_stage,
        message=submission.progress_message or "",
        share=submission.progress_share,
    )


def _stage_s(submission: Submission, evaluation: Evaluation | None) -> dict[str, float]:
    # The build has its own worker, so the evaluation may not know how long it took.
    built = {} if submission.build_s is None else {"building": submission.build_s}
    return built if evaluation is None else {**built, **evaluation.stage_s}


def _problem_fields(problem: Problem) -> dict[str, Any]:
    return {
        "id": problem.id,
        "version": problem.version,
        "title": problem.title,
        "description": problem.description,
        "dtype": problem.dtype,
        "sizes": {name: dict(size) for name, size in problem.sizes.items()},
        "gradient_policy": problem.gradient_policy,
        "input_domain": problem.input_domain,
        "tolerances": {precision: asdict(problem.tolerance(precision)) for precision in PRECISIONS},
        "tags": list(problem.tags),
        "kernelbench": None if problem.kernelbench is None else asdict(problem.kernelbench),
    }
