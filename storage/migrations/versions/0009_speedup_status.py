"""Whether a track has a figure, and why not, where it has none."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from storage.columns import CleanText

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

_TRACKS = ("speedup", "speedup_training")


def upgrade() -> None:
    for figure in _TRACKS:
        op.add_column("evaluations", sa.Column(f"{figure}_status", CleanText(), nullable=True))
        evaluations = sa.table("evaluations", sa.column(figure), sa.column(f"{figure}_status"))
        measured = evaluations.update().where(evaluations.c[figure].is_not(None))
        op.execute(measured.values({f"{figure}_status": "measured"}))


def downgrade() -> None:
    for figure in _TRACKS:
        op.drop_column("evaluations", f"{figure}_status")
