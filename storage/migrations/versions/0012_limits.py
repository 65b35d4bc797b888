"""A submission may ask for less time than the machine and the problem allow."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from storage.columns import CleanText

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("submissions", sa.Column("limits", CleanText(), nullable=False, server_default=""))


def downgrade() -> None:
    op.drop_column("submissions", "limits")
