"""Batches, and the order in which what waits is taken up."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from storage.columns import CleanText, UtcDateTime

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # Column by column, and not with a table made anew: on SQLite, rows of other tables refer to this one.
    # What is there was handed in one by one: it goes first, and is shared with nobody.
    op.add_column("submissions", sa.Column("turn", sa.Integer(), nullable=False, server_default="0"))
    op.add_column("submissions", sa.Column("share_key", CleanText(), nullable=True))
    op.create_index("ix_submissions_share_key", "submissions", ["share_key"], unique=True)
    op.drop_index("ix_submissions_status_stage_device_id", "submissions")
    op.create_index(
        "ix_submissions_status_stage_device_turn_id", "submissions", ["status", "stage", "device", "turn", "id"]
    )

    op.create_table(
        "batches",
        sa.Column("id", CleanText(), nullable=False),
        sa.Column("name", CleanText(), nullable=True),
        sa.Column("idempotency_key", CleanText(), nullable=True),
        sa.Column("content_digest", CleanText(), nullable=True),
        sa.Column("items", sa.Integer(), nullable=False),
        sa.Column("errors", sa.Integer(), nullable=False),
        sa.Column("last_place", sa.Integer(), nullable=False),
        sa.Column("message", CleanText(), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("heard_at", UtcDateTime(), nullable=False),
        sa.Column("received_at", UtcDateTime(), nullable=True),
        sa.Column("cancelled_at", UtcDateTime(), nullable=True),
        sa.Column("finished_at", UtcDateTime(), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_batches"),
        sa.UniqueConstraint("idempotency_key", name="uq_batches_idempotency_key"),
    )
    op.create_table(
        "batch_items",
        sa.Column("batch_id", CleanText(), nullable=False),
        sa.Column("line", sa.Integer(), nullable=False),
        sa.Column("label", CleanText(), nullable=True),
        sa.Column("submission_id", CleanText(), nullable=False),
        sa.Column("shared", sa.Boolean(), nullable=False),
        sa.Column("cancelled", sa.Boolean(), nullable=False),
        sa.Column("place", sa.Integer(), nullable=True),
        sa.Column("finished_at", UtcDateTime(), nullable=True),
        sa.ForeignKeyConstraint(["batch_id"], ["batches.id"], name="fk_batch_items_batch_id"),
        sa.ForeignKeyConstraint(["submission_id"], ["submissions.id"], name="fk_batch_items_submission_id"),
        sa.PrimaryKeyConstraint("batch_id", "line", name="pk_batch_items"),
    )
    op.create_index("ix_batch_items_batch_id_place", "batch_items", ["batch_id", "place"])
    op.create_index("ix_batch_items_submission_id", "batch_items", ["submission_id"])

    op.create_table(
        "batch_errors",
        sa.Column("batch_id", CleanText(), nullable=False),
        sa.Column("line", sa.Integer(), nullable=False),
        sa.Column("message", CleanText(), nullable=False),
        sa.ForeignKeyConstraint(["batch_id"], ["batches.id"], name="fk_batch_errors_batch_id"),
        sa.PrimaryKeyConstraint("batch_id", "line", name="pk_batch_errors"),
    )
    op.create_table(
        "webhooks",
        sa.Column("batch_id", CleanText(), nullable=False),
        sa.Column("url", CleanText(), nullable=False),
        sa.Column("secret", CleanText(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("due_at", UtcDateTime(), nullable=True),
        sa.Column("delivered_at", UtcDateTime(), nullable=True),
        sa.Column("message", CleanText(), nullable=False),
        sa.ForeignKeyConstraint(["batch_id"], ["batches.id"], name="fk_webhooks_batch_id"),
        sa.PrimaryKeyConstraint("batch_id", name="pk_webhooks"),
    )
    op.create_index("ix_webhooks_due_at", "webhooks", ["due_at"])


def downgrade() -> None:
    op.drop_index("ix_webhooks_due_at", "webhooks")

    op.drop_table("webhooks")
    op.drop_table("batch_errors")
    op.drop_index("ix_batch_items_submission_id", "batch_items")
    op.drop_index("ix_batch_items_batch_id_place", "batch_items")

    op.drop_table("batch_items")
    op.drop_table("batches")
    op.drop_index("ix_submissions_status_stage_device_turn_id", "submissions")
    op.create_index("ix_submissions_status_stage_device_id", "submissions", ["status", "stage", "device", "id"])
    op.drop_index("ix_submissions_share_key", "submissions")

    op.drop_column("submissions", "share_key")
    op.drop_column("submissions", "turn")
