"""A submission, and each line of a batch, has metadata of its user and the submission that it was derived from."""

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


def downgrade() -> None:
    op.drop_index("ix_batch_items_parent", "batch_items")
    op.drop_index("ix_submissions_parent_id", "submissions")
    for table in ("batch_items", "submissions"):
        op.drop_column(table, "parent")
        op.drop_column(table, "user_metadata")
