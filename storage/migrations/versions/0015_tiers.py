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
    kept = op.get_bind().scalar(sa.text("SELECT count(*) FROM submissions WHERE tier <> 'full'"))
    if kept:
        raise RuntimeError(
            f"{kept} submissions are of the tiers check and quick, and the schema before 0015 would rank them. If that "
            "is meant, set their column tier to full"
        )
    op.drop_column("submissions", "tier")
