"""Evaluations of one verdict in the order of their submissions: a list of them begins with the latest."""

from __future__ import annotations

from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index("ix_evaluations_verdict_submission_id", "evaluations", ["verdict", "submission_id"])
    op.drop_index("ix_evaluations_verdict", "evaluations")


def downgrade() -> None:
    op.create_index("ix_evaluations_verdict", "evaluations", ["verdict"])
    op.drop_index("ix_evaluations_verdict_submission_id", "evaluations")
