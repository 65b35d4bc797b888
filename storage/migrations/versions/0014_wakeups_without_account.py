"""Rows keep no account of their wake-ups any more."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from storage.columns import UtcDateTime

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

_TABLES = ("submissions", "diagnoses")


def upgrade() -> None:
    for table in _TABLES:
        op.drop_column(table, "wakeups")
        op.drop_column(table, "wakeup_due_at")


def downgrade() -> None:
    for table in _TABLES:
        # With no time of the next wake-up, a waiting row gets one in the next pass of a reconciler.
        op.add_column(table, sa.Column("wakeups", sa.Integer(), nullable=False, server_default="0"))
        op.add_column(table, sa.Column("wakeup_due_at", UtcDateTime(), nullable=True))
