"""Diagnoses, made on a queue of their own."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from storage.columns import CleanText, JsonData, UtcDateTime

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "diagnoses",
        sa.Column("submission_id", CleanText(), nullable=False),
        sa.Column("tool", CleanText(), nullable=False),
        sa.Column("status", CleanText(), nullable=False),
        sa.Column("message", CleanText(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("faults", sa.Integer(), nullable=False),
        sa.Column("bell_due_at", UtcDateTime(), nullable=True),
        sa.Column("bells", sa.Integer(), nullable=False),
        sa.Column("not_before", UtcDateTime(), nullable=True),
        sa.Column("claim_token", CleanText(), nullable=True),
        sa.Column("claim_worker", CleanText(), nullable=True),
        sa.Column("lease_until", UtcDateTime(), nullable=True),
        sa.Column("requested_at", UtcDateTime(), nullable=False),
        sa.Column("started_at", UtcDateTime(), nullable=True),
        sa.Column("finished_at", UtcDateTime(), nullable=True),
        sa.Column("result", JsonData(), nullable=True),
        sa.Column("printed", CleanText(), nullable=False),
        sa.ForeignKeyConstraint(["submission_id"], ["submissions.id"], name="fk_diagnoses_submission_id"),
        sa.PrimaryKeyConstraint("submission_id", "tool", name="pk_diagnoses"),
    )
    op.create_index("ix_diagnoses_claim_token", "diagnoses", ["claim_token"], unique=True)
    op.create_index("ix_diagnoses_lease_until", "diagnoses", ["lease_until"])
    op.create_index("ix_diagnoses_status_tool_requested_at", "diagnoses", ["status", "tool", "requested_at"])


def downgrade() -> None:
    op.drop_index("ix_diagnoses_status_tool_requested_at", "diagnoses")
    op.drop_index("ix_diagnoses_lease_until", "diagnoses")
    op.drop_index("ix_diagnoses_claim_token", "diagnoses")

    op.drop_table("diagnoses")
