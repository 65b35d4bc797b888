"""What vetting found about problems, and whose figures are not shown for it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from storage.columns import CleanText, JsonData, UtcDateTime

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("problems", sa.Column("vettings", JsonData(), nullable=False, server_default="[]"))
    op.add_column("evaluations", sa.Column("withheld", CleanText(), nullable=True))
    op.create_table(
        "vettings",
        sa.Column("problem", CleanText(), nullable=False),
        sa.Column("problem_version", CleanText(), nullable=False),
        sa.Column("precision", CleanText(), nullable=False),
        sa.Column("device", CleanText(), nullable=False),
        sa.Column("record", JsonData(), nullable=False),
        sa.Column("found_at", UtcDateTime(), nullable=False),
        sa.ForeignKeyConstraint(
            ["problem", "problem_version"], ["problems.id", "problems.version"], name="fk_vettings_problem"
        ),
        sa.PrimaryKeyConstraint("problem", "problem_version", "precision", "device", name="pk_vettings"),
    )


def downgrade() -> None:
    op.drop_table("vettings")
    op.drop_column("evaluations", "withheld")
    op.drop_column("problems", "vettings")
