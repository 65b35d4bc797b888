"""The first tables."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from storage.columns import CleanText, JsonData, UtcDateTime

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "problems",
        sa.Column("id", CleanText(), nullable=False),
        sa.Column("version", CleanText(), nullable=False),
        sa.Column("definition", JsonData(), nullable=False),
        sa.Column("current", sa.Boolean(), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.PrimaryKeyConstraint("id", "version", name="pk_problems"),
    )
    op.create_index("ix_problems_current", "problems", ["current"])

    op.create_table(
        "sources",
        sa.Column("digest", CleanText(), nullable=False),
        sa.Column("text", CleanText(), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.PrimaryKeyConstraint("digest", name="pk_sources"),
    )
    op.create_table(
        "workers",
        sa.Column("id", CleanText(), nullable=False),
        sa.Column("kind", CleanText(), nullable=False),
        sa.Column("queues", JsonData(), nullable=False),
        sa.Column("device", CleanText(), nullable=True),
        sa.Column("capabilities", JsonData(), nullable=False),
        sa.Column("started_at", UtcDateTime(), nullable=False),
        sa.Column("heartbeat_at", UtcDateTime(), nullable=False),
        sa.Column("current_submission", CleanText(), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_workers"),
    )
    op.create_table(
        "submissions",
        sa.Column("id", CleanText(), nullable=False),
        sa.Column("problem", CleanText(), nullable=False),
        sa.Column("problem_version", CleanText(), nullable=False),
        sa.Column("source_digest", CleanText(), nullable=False),
        sa.Column("origin", CleanText(), nullable=False),
        sa.Column("device", CleanText(), nullable=False),
        sa.Column("size", CleanText(), nullable=False),
        sa.Column("precision", CleanText(), nullable=False),
        sa.Column("baseline", CleanText(), nullable=False),
        sa.Column("require_gradients", sa.Boolean(), nullable=True),
        sa.Column("label", CleanText(), nullable=True),
        sa.Column("author", CleanText(), nullable=True),
        sa.Column("idempotency_key", CleanText(), nullable=True),
        sa.Column("content_digest", CleanText(), nullable=False),
        sa.Column("status", CleanText(), nullable=False),
        sa.Column("stage", CleanText(), nullable=False),
        sa.Column("message", CleanText(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("faults", sa.Integer(), nullable=False),
        sa.Column("bell_due_at", UtcDateTime(), nullable=True),
        sa.Column("bells", sa.Integer(), nullable=False),
        sa.Column("not_before", UtcDateTime(), nullable=True),
        sa.Column("claim_token", CleanText(), nullable=True),
        sa.Column("claim_worker", CleanText(), nullable=True),
        sa.Column("lease_until", UtcDateTime(), nullable=True),
        sa.Column("progress_stage", CleanText(), nullable=True),
        sa.Column("progress_message", CleanText(), nullable=True),
        sa.Column("progress_share", sa.Double(), nullable=True),
        sa.Column("build_s", sa.Double(), nullable=True),
        sa.Column("build_log", CleanText(), nullable=False),
        sa.Column("submitted_at", UtcDateTime(), nullable=False),
        sa.Column("built_at", UtcDateTime(), nullable=True),
        sa.Column("started_at", UtcDateTime(), nullable=True),
        sa.Column("finished_at", UtcDateTime(), nullable=True),
        sa.ForeignKeyConstraint(
            ["problem", "problem_version"],
            ["problems.id", "problems.version"],
            name="fk_submissions_problem_problem_version",
        ),
        sa.ForeignKeyConstraint(["source_digest"], ["sources.digest"], name="fk_submissions_source_digest"),
        sa.PrimaryKeyConstraint("id", name="pk_submissions"),
        sa.UniqueConstraint("idempotency_key", name="uq_submissions_idempotency_key"),
    )
    op.create_index("ix_submissions_claim_token", "submissions", ["claim_token"], unique=True)
    op.create_index("ix_submissions_lease_until", "submissions", ["lease_until"])
    op.create_index(
        "ix_submissions_problem_problem_version_device_size_precision",
        "submissions",
        ["problem", "problem_version", "device", "size", "precision"],
    )
    op.create_index("ix_submissions_source_digest", "submissions", ["source_digest"])
    op.create_index("ix_submissions_status_stage_device_id", "submissions", ["status", "stage", "device", "id"])

    op.create_table(
        "attempts",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("submission_id", CleanText(), nullable=False),
        sa.Column("stage", CleanText(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("worker", CleanText(), nullable=False),
        sa.Column("token", CleanText(), nullable=False),
        sa.Column("started_at", UtcDateTime(), nullable=False),
        sa.Column("ended_at", UtcDateTime(), nullable=True),
        sa.Column("outcome", CleanText(), nullable=False),
        sa.Column("detail", CleanText(), nullable=False),
        sa.ForeignKeyConstraint(["submission_id"], ["submissions.id"], name="fk_attempts_submission_id"),
        sa.PrimaryKeyConstraint("id", name="pk_attempts"),
        sa.UniqueConstraint("token", name="uq_attempts_token"),
    )
    op.create_index("ix_attempts_submission_id", "attempts", ["submission_id"])

    op.create_table(
        "evaluations",
        sa.Column("id", CleanText(), nullable=False),
        sa.Column("submission_id", CleanText(), nullable=False),
        sa.Column("verdict", CleanText(), nullable=False),
        sa.Column("gradients", CleanText(), nullable=False),
        sa.Column("device", CleanText(), nullable=False),
        sa.Column("device_name", CleanText(), nullable=True),
        sa.Column("speedup", sa.Double(), nullable=True),
        sa.Column("speedup_training", sa.Double(), nullable=True),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("record", JsonData(), nullable=False),
        sa.Column("samples", JsonData(), nullable=False),
        sa.Column("log", CleanText(), nullable=False),
        sa.ForeignKeyConstraint(["submission_id"], ["submissions.id"], name="fk_evaluations_submission_id"),
        sa.PrimaryKeyConstraint("id", name="pk_evaluations"),
        sa.UniqueConstraint("submission_id", name="uq_evaluations_submission_id"),
    )
    op.create_index("ix_evaluations_verdict", "evaluations", ["verdict"])


def downgrade() -> None:
    op.drop_index("ix_evaluations_verdict", "evaluations")

    op.drop_table("evaluations")
    op.drop_index("ix_attempts_submission_id", "attempts")

    op.drop_table("attempts")
    op.drop_index("ix_submissions_status_stage_device_id", "submissions")
    op.drop_index("ix_submissions_source_digest", "submissions")
    op.drop_index("ix_submissions_problem_problem_version_device_size_precision", "submissions")
    op.drop_index("ix_submissions_lease_until", "submissions")
    op.drop_index("ix_submissions_claim_token", "submissions")

    op.drop_table("submissions")
    op.drop_table("workers")
    op.drop_table("sources")
    op.drop_index("ix_problems_current", "problems")

    op.drop_table("problems")
