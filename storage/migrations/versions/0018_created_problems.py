"""Clients may create problems through the API, each with an owner and a visibility."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from storage.columns import CleanText, UtcDateTime

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "created_problems",
        sa.Column("id", CleanText(), nullable=False),
        sa.Column("version", CleanText(), nullable=False),
        sa.Column("owner", CleanText(), nullable=True),
        sa.Column("visibility", CleanText(), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("withdrawn_at", UtcDateTime(), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_created_problems"),
        sa.ForeignKeyConstraint(
            ["id", "version"], ["problems.id", "problems.version"], name="fk_created_problems_id_version"
        ),
    )


def downgrade() -> None:
    kept = op.get_bind().scalar(sa.text("SELECT count(*) FROM created_problems"))
    if kept:
        raise RuntimeError(
            f"there are {kept} problems of clients, and the schema before 0018 has neither their owners nor their "
            "visibility: it would show the leaderboards of private ones. If that is meant, delete their rows of "
            "created_problems"
        )
    op.drop_table("created_problems")
