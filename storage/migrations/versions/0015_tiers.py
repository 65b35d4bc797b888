"""A submission may be graded without timing, or with a rough figure."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from storage.columns import CleanText

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("submissions", sa.Column("tier", CleanText(), nullable=False, server_default="full"))


def downgrade() -> None:
    op.drop_column("submissions", "tier")
