"""Conversion of submissions and their diagnoses to records, as their viewer may see them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from typing import Any, cast

from sqlalchemy.orm import Session

from api.labels import undiagnosed
from api.records.encoding import to_text
from api.records.queries import served_queues
from evaluator.config import parse_limits
from evaluator.evaluation import ErrorFigures, Evaluation, Status, Verdict
from evaluator.feedback.feedback import feedback
from kerneljudge.records import (
    AttemptList,
    AttemptRecord,
    CheckRecord,
    DiagnosisRecord,
    DiagnosisResult,
    LinkRecord,
    ProgressRecord,
    RequirementsRecord,
    SamplesRecord,
    SeriesRecord,
    ShapeFiguresRecord,
    SubmissionRecord,
    VerificationRecord,
    WithdrawalRecord,
)
from kerneljudge.terms.findings import Tool
from kerneljudge.terms.rules import parse_rules
from storage.access.visibility import Viewer
from storage.grading.diagnoses import Diagnoses, undiagnosable
from storage.grading.verification import checks_of, verification_of
from storage.models import Attempt, DiagnosisStatus, Stage, StoredDiagnosis, Submission
from storage.queue.eligibility import NO_REQUIREMENTS, Requirements, waiting_for
from storage.queue.workers import Worker, list_workers
from storage.submissions.listing import queue_position
from storage.submissions.parents import seen_ids
from storage.submissions.submissions import Submissions

__all__ = [
    "attempt_list",
    "current_record",
    "diagnosis_record",
    "diagnosis_records",
    "records_with_feedback",
    "samples_record",
    "submission_records",
]

_FROM_EVALUATION = (
    "gradients",
    "speedup",
    "speedup_interval",
    "speedup_status",
    "speedup_warm",
    "speedup_warm_interval",
    "speedup_training",
    "speedup_training_interval",
    "speedup_training_status",
    "speedup_compiled",
    "speedup_compiled_interval",
    "speedup_mean",
    "speedup_mean_interval",
    "speedup_training_mean",
    "speedup_training_mean_interval",
    "latency_ms",
    "latency_warm_ms",
    "latency_training_ms",
    "roofline_share",
    "peak_memory_bytes",
)


def current_record(
    session: Session, submission: Submission, viewer: Viewer, *, source: str | None = None
) -> SubmissionRecord:
    """Return the record of ``submission`` with its place in the queue, its feedback and its latest diagnosis.

    It has a place only while it waits in a queue. ``source`` is its source, where that was read already.
    """
    submissions = Submissions(session)
    workers = list_workers(session) if submission.state is Status.QUEUED else ()
    parents = seen_ids(session, [submission.parent], viewer)
    record = _submission_record(submission, workers, queue_position(session, submission), viewer, parents)
    # Without an evaluation there is no diagnosis. Only passed submissions are ever re-evaluated.
    if submission.evaluation is None or not record["source_shown"]:
        return record
    if source is None:
        source = submissions.sources_of([submission])[submission.source_digest]
    record["feedback"] = feedback(submission.evaluation.to_evaluation(), source)
    if undiagnosable(submission) is None:
        record["diagnosis"] = next(iter(diagnosis_records(session, submission.id)), None)
    if record["verdict"] == Verdict.PASSED:
        record["verification"] = _verification_record(session, submission.id, viewer)
    return record


def submission_records(session: Session, submissions: Sequence[Submission], viewer: Viewer) -> list[SubmissionRecord]:
    """Return the records of ``submissions``, without their places in the queue."""
    workers = list_workers(session)
    parents = seen_ids(session, (submission.parent for submission in submissions), viewer)
    return [_submission_record(submission, workers, None, viewer, parents) for submission in submissions]


def records_with_feedback(
    session: Session, submissions: Sequence[Submission], viewer: Viewer
) -> list[SubmissionRecord]:
    """Return the records of ``submissions`` with their feedback for a language model.

    Where a submission occurs twice, both places have the same record.
    """
    distinct = {submission.id: submission for submission in submissions}
    records = dict(zip(distinct, submission_records(session, list(distinct.values()), viewer), strict=True))
    shown = [submission for submission in distinct.values() if records[submission.id]["source_shown"]]
    evaluated = [submission for submission in shown if submission.evaluation is not None]
    sources = Submissions(session).sources_of(evaluated)
    for submission in evaluated:
        assert submission.evaluation is not None
        source = sources[submission.source_digest]
        records[submission.id]["feedback"] = feedback(submission.evaluation.to_evaluation(), source)
    return [records[submission.id] for submission in submissions]


def diagnosis_records(session: Session, submission_id: str) -> list[DiagnosisRecord]:
    """Return every diagnosis of a submission, the latest first, without the printed output."""
    return [diagnosis_record(session, diagnosis) for diagnosis in Diagnoses(session).of_submission(submission_id)]


def diagnosis_record(session: Session, diagnosis: StoredDiagnosis, *, printed: bool = False) -> DiagnosisRecord:
    """Return the record of ``diagnosis``; with ``printed``, also the output of candidate and tool."""
    tool, message = Tool(diagnosis.tool), diagnosis.message
    if diagnosis.state is DiagnosisStatus.PENDING:
        message = "; ".join(part for part in (message, undiagnosed(tool, served_queues(session))) if part)
    result = diagnosis.result
    return {
        "submission": diagnosis.submission_id,
        "tool": tool,
        "status": diagnosis.state,
        "message": message,
        "attempts": diagnosis.attempts,
        "requested": to_text(diagnosis.requested_at),
        "started": to_text(diagnosis.started_at),
        "finished": to_text(diagnosis.finished_at),
        "result": None
        if result is None
        else cast(DiagnosisResult, {**result, "printed": diagnosis.printed if printed else ""}),
    }


def samples_record(submission: Submission) -> SamplesRecord | None:
    """Return the raw samples of ``submission``, by track; ``None`` while there are none, or if nothing was timed."""
    samples = {} if submission.evaluation is None else submission.evaluation.to_evaluation(complete=True).samples
    tracks = {track: cast(SeriesRecord, vars(series)) for track, series in samples.items()}
    return SamplesRecord(submission=submission.id, tracks=tracks) if tracks else None


def attempt_list(submission: Submission, attempts: Sequence[Attempt], viewer: Viewer) -> AttemptList:
    """Return the attempts on ``submission`` as a record."""
    shown = viewer.sees_source(submission)
    items = [
        AttemptRecord(
            number=attempt.number,
            stage="build" if attempt.stage == "build" else "evaluate",
            worker=attempt.worker,
            device=attempt.device,
            started=to_text(attempt.started_at),
            ended=to_text(attempt.ended_at),
            outcome=attempt.outcome,
            detail=attempt.detail if shown else "",
        )
        for attempt in attempts
    ]
    return AttemptList(submission=submission.id, items=items)


def _submission_record(
    submission: Submission,
    workers: Sequence[Worker],
    queue_position: int | None,
    viewer: Viewer,
    parents: Collection[str],
) -> SubmissionRecord:
    """Return the record of ``submission``. ``parents`` are ids of parents that the viewer may know of."""
    stored = submission.evaluation
    shown, owned = viewer.sees_source(submission), viewer.owns(submission)
    evaluation = None if stored is None else stored.to_evaluation()
    plain = {} if evaluation is None else evaluation.to_dict()
    missing = _waiting_for(submission, workers)
    return cast(
        SubmissionRecord,
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
            "limits": parse_limits(submission.limits),
            "tier": submission.tier,
            "rules": parse_rules(submission.rules).to_dict(),
            "label": submission.label,
            "author": submission.author,
            "metadata": submission.user_metadata,
            "parent": submission.parent if submission.parent in parents else None,
            "visibility": submission.visibility,
            "owner": submission.owner if owned else None,
            "source_shown": shown,
            "withdrawal": _withdrawal(submission, owned=owned),
            **{name: plain.get(name) for name in _FROM_EVALUATION},
            "shapes": {name: _shape(figures) for name, figures in plain.get("shapes", {}).items()},
            "roofline": plain.get("roofline", {}),
            "errors": plain.get("errors") or asdict(ErrorFigures()),
            "message": "; ".join(part for part in (submission.message, missing) if part),
            "hints": list(plain.get("hints", ())),
            "notes": list(plain.get("notes", ())),
            "flags": plain.get("flags", []),
            "feedback": None,
            "diagnosis": None,
            "verification": None,
            "verifies": submission.verifies,
            "requirements": _requirements(submission),
            "waiting_for": missing,
            "details": plain.get("details", {}),
            "queue_position": queue_position,
            "attempts": submission.attempts,
            "progress": _progress(submission),
            "timeline": {
                "submitted": to_text(submission.submitted_at),
                "built": to_text(submission.built_at),
                "started": to_text(submission.started_at),
                "finished": to_text(submission.finished_at),
            },
            "stage_s": _stage_s(submission, evaluation),
            "environment": plain.get("environment", {}),
            "links": submission_links(submission.id),
            **({} if shown else _hidden(submission)),
        },
    )


def _shape(figures: Mapping[str, Any]) -> ShapeFiguresRecord:
    return cast(ShapeFiguresRecord, {name: figures[name] for name in ShapeFiguresRecord.__annotations__})


def _hidden(submission: Submission) -> dict[str, Any]:
    """Return the replacements of the fields that may quote a hidden source."""
    return {
        "message": ""
        if submission.evaluation is None
        else "the author hides the source, so details that quote it are hidden too",
        "hints": [],
        "notes": [],
        "flags": [],
        "details": {},
        "progress": None,
        "metadata": None,
    }


def _withdrawal(submission: Submission, *, owned: bool) -> WithdrawalRecord | None:
    if submission.withdrawn_at is None:
        return None
    by = submission.withdrawn_by if owned else None
    withdrawn = to_text(submission.withdrawn_at)
    return {"reason": submission.withdrawn_reason or "", "withdrawn": withdrawn, "by": by}


def submission_links(submission_id: str) -> LinkRecord:
    """Return the addresses of everything about a submission."""
    base = f"/api/v1/submissions/{submission_id}"
    return {
        "self": base,
        "source": f"{base}/source",
        "reference": f"{base}/reference",
        "log": f"{base}/log",
        "samples": f"{base}/samples",
        "attempts": f"{base}/attempts",
        "events": f"{base}/events",
        "diagnosis": f"{base}/diagnosis",
        "page": f"/submissions/{submission_id}",
    }


def _waiting_for(submission: Submission, workers: Sequence[Worker]) -> str | None:
    if submission.state is not Status.QUEUED:
        return None
    stage: Stage = "build" if submission.stage == "build" else "evaluate"
    return waiting_for(stage, submission, workers)


def _requirements(submission: Submission) -> RequirementsRecord | None:
    asked = Requirements.of(submission)
    if asked == NO_REQUIREMENTS:
        return None
    return RequirementsRecord(
        device_name=asked.device_name,
        min_memory_gib=None if asked.memory_bytes is None else asked.memory_bytes / 2**30,
        min_compute_capability=None if asked.capability is None else f"{asked.capability / 10:.1f}",
    )


def _verification_record(session: Session, submission_id: str, viewer: Viewer) -> VerificationRecord | None:
    verification = verification_of(session, submission_id)
    if verification is None:
        return None
    checks = checks_of(session, submission_id)
    return VerificationRecord(
        status=verification.state,
        message=verification.message,
        requested=to_text(verification.requested_at),
        finished=to_text(verification.finished_at),
        checks=[_check_record(session, check, viewer) for check in checks],
    )


def _check_record(session: Session, check: Submission, viewer: Viewer) -> CheckRecord:
    attempts = Submissions(session).attempts_of(check.id)
    record = _submission_record(check, (), None, viewer, ())
    return CheckRecord(
        submission=check.id,
        status=record["status"],
        verdict=record["verdict"],
        gradients=record["gradients"],
        speedup=record["speedup"],
        speedup_interval=record["speedup_interval"],
        speedup_status=record["speedup_status"],
        speedup_training=record["speedup_training"],
        speedup_training_interval=record["speedup_training_interval"],
        speedup_training_status=record["speedup_training_status"],
        device=next((attempt.device for attempt in reversed(attempts) if attempt.device), None),
        finished=to_text(check.finished_at),
    )


def _progress(submission: Submission) -> ProgressRecord | None:
    if submission.progress_stage is None or submission.state.final:
        return None
    return ProgressRecord(
        stage=submission.progress_stage,
        message=submission.progress_message or "",
        share=submission.progress_share,
    )


def _stage_s(submission: Submission, evaluation: Evaluation | None) -> dict[str, float]:
    # The build has its own worker, so the evaluation may not know the build time.
    built = {} if submission.build_s is None else {"building": submission.build_s}
    return built if evaluation is None else {**built, **evaluation.stage_s}
