"""A submission may add rules about its source to those of its problem."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from storage.columns import CleanText

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("submissions", sa.Column("rules", CleanText(), nullable=False, server_default=""))


def downgrade() -> None:
    op.drop_column("submissions", "rules")
