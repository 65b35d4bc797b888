"""Counts for meters, how busy workers are, and the trace that a submission is part of."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from storage.columns import CleanText

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "counts",
        sa.Column("name", CleanText(), nullable=False),
        sa.Column("labels", CleanText(), nullable=False),
        sa.Column("shard", sa.Integer(), nullable=False),
        sa.Column("value", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("name", "labels", "shard", name="pk_counts"),
    )
    op.add_column("workers", sa.Column("busy_s", sa.Double(), nullable=False, server_default="0"))
    op.add_column("submissions", sa.Column("traceparent", CleanText(), nullable=True))
    op.create_index("ix_batches_finished_at", "batches", ["finished_at"])
    _fill()


def downgrade() -> None:
    op.drop_index("ix_batches_finished_at", "batches")
    op.drop_column("submissions", "traceparent")
    op.drop_column("workers", "busy_s")
    op.drop_table("counts")


def _fill() -> None:
    """How many submissions have ended without a verdict: a state, where all other counts may begin at nothing."""
    connection = op.get_bind()
    metadata = sa.MetaData()
    submissions, counts = (sa.Table(name, metadata, autoload_with=connection) for name in ("submissions", "counts"))
    for status in ("cancelled", "failed"):
        number = connection.scalar(sa.select(sa.func.count()).where(submissions.c.status == status))
        if number:
            op.execute(
                sa.insert(counts).values(name="submissions_ended", labels=f'["{status}"]', shard=0, value=number)
            )
