"""Submissions and lines of batches have metadata and parents, and keys may see their client's submissions alone."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from storage.columns import CleanText, JsonText

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for table in ("submissions", "batch_items"):
        op.add_column(table, sa.Column("user_metadata", JsonText(), nullable=True))
        op.add_column(table, sa.Column("parent", CleanText(), nullable=True))
    op.create_index("ix_submissions_parent_id", "submissions", ["parent", "id"])
    op.create_index("ix_batch_items_parent", "batch_items", ["parent"])
    op.create_index("ix_submissions_tier_id", "submissions", ["tier", "id"])
    op.add_column("api_keys", sa.Column("own_only", sa.Boolean(), nullable=False, server_default=sa.false()))


def downgrade() -> None:
    query = sa.text("SELECT count(*) FROM api_keys WHERE own_only AND revoked_at IS NULL")
    kept = op.get_bind().scalar(query)
    if kept:
        raise RuntimeError(
            f"{kept} keys see their client's submissions alone, and the schema before 0016 would show them all. If "
            "that is meant, set the column own_only to false, or revoke the keys"
        )
    op.drop_column("api_keys", "own_only")
    op.drop_index("ix_submissions_tier_id", "submissions")
    op.drop_index("ix_batch_items_parent", "batch_items")
    op.drop_index("ix_submissions_parent_id", "submissions")
    for table in ("batch_items", "submissions"):
        op.drop_column(table, "parent")
        op.drop_column(table, "user_metadata")
