"""The metrics of the work: attempts, durations, builds, faults, and the ends of submissions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final, get_args

from sqlalchemy import select
from sqlalchemy.orm import Session

from evaluator.config import DEVICE_KINDS
from evaluator.evaluation import Evaluation, Status
from storage.metrics.counters import Counted, Timed, count, observe, read_counts
from storage.models import AttemptOutcome, Stage, Submission
from storage.queue.activity import FAULTS
from storage.queue.workers import place_of

__all__ = [
    "ACCEPTED",
    "ATTEMPTS",
    "BUILDS",
    "CANDIDATE_FAULTS",
    "DELIVERIES",
    "ENDED",
    "MACHINE_FAULTS",
    "STAGE_SECONDS",
    "attempt_ended",
    "built",
    "device_faulted",
    "ended",
    "machine_faults",
    "stage_done",
]

_STAGES: Final = get_args(Stage)
_OUTCOMES: Final = tuple(outcome for outcome in get_args(AttemptOutcome) if outcome != "running")

ACCEPTED: Final = Counted(
    "submissions_accepted",
    ("device", "via"),
    "Submissions taken in, singly or in batches.",
    (DEVICE_KINDS, ("single", "batch")),
)
ATTEMPTS: Final = Counted(
    "attempts",
    ("stage", "device", "outcome"),
    "Attempts on submissions that have ended.",
    (_STAGES, DEVICE_KINDS, _OUTCOMES),
)
BUILDS: Final = Counted(
    "builds",
    ("stage", "device", "recipe", "result"),
    "Extensions: found in the cache (hit), compiled (miss), or refused by the compiler (error).",
)
CANDIDATE_FAULTS: Final = Counted(
    "candidate_device_faults", ("host", "device", "kind"), "Device faults that candidates ended with, by device."
)
DELIVERIES: Final = Counted(
    "webhook_deliveries", ("outcome",), "Attempts at webhooks: taken or refused.", (("taken", "refused"),)
)
ENDED: Final = Counted("submissions_ended", ("status",), "Submissions that ended without a verdict.")
MACHINE_FAULTS: Final = Counted(
    "faults", ("host", "device", "stage", "kind"), "Attempts that failed through our fault, by who made them."
)
STAGE_SECONDS: Final = Timed(
    "stage_seconds",
    ("stage", "device"),
    "What submissions with a verdict took: waits, build, evaluation, and all together (total).",
    (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0, 14400.0),
    ((*_STAGES, *(f"{stage}_wait" for stage in _STAGES), "total"), DEVICE_KINDS),
)


def attempt_ended(session: Session, stage: str, device: str, worker: str, outcome: AttemptOutcome) -> None:
    """Count the end of an attempt by ``worker``; ``device`` is the kind of device of the submission."""
    count(session, ATTEMPTS, stage, device, outcome)
    if outcome in FAULTS:
        place = place_of(worker)
        count(session, MACHINE_FAULTS, place.host, place.device, stage, outcome)


def stage_done(
    session: Session, submission_id: str, stage: Stage, started_at: datetime, now: datetime, *, last: bool
) -> None:
    """Count the durations of a completed stage.

    Its wait lasts until the successful attempt began, and so includes failed attempts.
    """
    times = select(Submission.device, Submission.submitted_at, Submission.built_at).where(
        Submission.id == submission_id
    )
    device, submitted_at, built_at = session.execute(times).one()
    queued_at = submitted_at if stage == "build" else built_at or submitted_at
    spans = {f"{stage}_wait": (queued_at, started_at), stage: (started_at, now)}
    if last:
        spans["total"] = (submitted_at, now)
    for name, (begin, end) in spans.items():
        observe(session, STAGE_SECONDS, name, device, seconds=(end - begin).total_seconds())


def built(session: Session, stage: Stage, device: str, builds: Sequence[Mapping[str, Any]], failed: int = 0) -> None:
    """Count a candidate's extensions: ``builds`` as in an evaluation's details, and the number of ``failed`` ones."""
    for build in builds:
        count(session, BUILDS, stage, device, str(build["recipe"]), "hit" if build["cached"] else "miss")
    if failed:
        count(session, BUILDS, stage, device, "none", "error", by=failed)


def device_faulted(session: Session, worker: str, evaluation: Evaluation) -> None:
    """Count the device fault of the candidate, if its evaluation ended with one."""
    kind = evaluation.details.get("device_fault")
    if kind is not None:
        place = place_of(worker)
        count(session, CANDIDATE_FAULTS, place.host, place.device, str(kind))


def ended(session: Session, status: Status, by: int = 1) -> None:
    """Count submissions that ended without a verdict; with ``by`` below 0, those that wait again."""
    count(session, ENDED, str(status), by=by)


def machine_faults(session: Session) -> Mapping[tuple[str, ...], int]:
    """Return the numbers of our faults, by the labels of ``MACHINE_FAULTS``."""
    return read_counts(session, [MACHINE_FAULTS])[MACHINE_FAULTS]
