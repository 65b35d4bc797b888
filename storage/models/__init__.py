"""The tables.

    sources              texts by their SHA-256
    problems             every version that was ever judged against
    created_problems     problems of clients: owner, visibility and current version
    submissions          requests for an evaluation, and their state
    attempts             each claim of a submission by a worker
    evaluations          the immutable records
    diagnoses            findings of tools in candidates
    workers              worker processes, by heartbeat
    batches              many submissions with one summary
    batch_items          the lines of batches
    batch_errors         lines that are no submission
    webhooks             receivers of the end of a batch
    rankings             groups of submissions that are ranked together
    leaderboard_entries  the best of each author and source
    ranking_records      the fastest of a ranking, over time
    author_bests         the best of each author
    verdict_counts       verdicts by problem
    counts               counters of the metrics
    verifications        records and their re-evaluations
    vettings             findings of workers about problems
    audit_events         actions of interest to administrators
    api_keys             keys and their scopes
    sign_ins             browsers that stand for a key
    usage                requests by key or address

Only the modules of ``storage`` write these rows. Each module here has the tables of one subject. This one imports them
all, so that Alembic sees every table.
"""

from __future__ import annotations

from storage.models.access import ApiKey, AuditEvent, SignIn, Usage
from storage.models.base import Base
from storage.models.batches import Batch, BatchError, BatchItem, BatchStatus, Webhook
from storage.models.diagnoses import DiagnosisStatus, StoredDiagnosis
from storage.models.leaderboards import (
    AuthorBest,
    RankingRecord,
    StoredLeaderboardEntry,
    StoredRanking,
    StoredVerification,
    VerdictCount,
    VerificationStatus,
)
from storage.models.leases import Leased
from storage.models.metrics import StoredCount
from storage.models.problems import CreatedProblem, StoredProblem, StoredSource, StoredVetting
from storage.models.submissions import Attempt, AttemptOutcome, Stage, StoredEvaluation, Submission
from storage.models.workers import StoredWorker, WorkerState

__all__ = [
    "ApiKey",
    "Attempt",
    "AttemptOutcome",
    "AuditEvent",
    "AuthorBest",
    "Base",
    "Batch",
    "BatchError",
    "BatchItem",
    "BatchStatus",
    "CreatedProblem",
    "DiagnosisStatus",
    "Leased",
    "RankingRecord",
    "SignIn",
    "Stage",
    "StoredCount",
    "StoredDiagnosis",
    "StoredEvaluation",
    "StoredLeaderboardEntry",
    "StoredProblem",
    "StoredRanking",
    "StoredSource",
    "StoredVerification",
    "StoredVetting",
    "StoredWorker",
    "Submission",
    "Usage",
    "VerdictCount",
    "VerificationStatus",
    "Webhook",
    "WorkerState",
]
