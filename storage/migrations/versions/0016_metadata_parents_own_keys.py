"""Submissions and lines of batches have metadata and parents, keys may see their client's alone, and
verdicts are counted by tier.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from alembic import op

from storage.columns import CleanText, JsonText

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None

_COUNTED = ("problem", "problem_version", "device", "verdict")
"""The key of the counts of verdicts before they had a tier."""


def upgrade() -> None:
    for table in ("submissions", "batch_items"):
        op.add_column(table, sa.Column("user_metadata", JsonText(), nullable=True))
        op.add_column(table, sa.Column("parent", CleanText(), nullable=True))
    op.create_index("ix_submissions_parent_id", "submissions", ["parent", "id"])
    op.create_index("ix_batch_items_parent", "batch_items", ["parent"])
    op.create_index("ix_submissions_tier_id", "submissions", ["tier", "id"])
    _count_by_tier()
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
    names = ", ".join(_COUNTED)
    counts = f"SELECT {names}, sum(count) AS count FROM verdict_counts GROUP BY {names}"  # noqa: S608 - names of ours
    _replace_counts([dict(row) for row in op.get_bind().execute(sa.text(counts)).mappings()], _COUNTED)
    op.drop_index("ix_submissions_tier_id", "submissions")
    op.drop_index("ix_batch_items_parent", "batch_items")
    op.drop_index("ix_submissions_parent_id", "submissions")
    for table in ("batch_items", "submissions"):
        op.drop_column(table, "parent")
        op.drop_column(table, "user_metadata")


def _count_by_tier() -> None:
    """Give the counts of verdicts a tier. Those of the tiers below ``full`` are counted anew."""
    connection = op.get_bind()
    same = ", ".join(f"submissions.{name}" for name in _COUNTED[:-1])
    below = (
        f"SELECT {same}, evaluations.verdict, tier, count(*) AS count FROM submissions "  # noqa: S608 - names of ours
        "JOIN evaluations ON evaluations.submission_id = submissions.id "
        "WHERE tier <> 'full' AND visibility <> 'private' AND verifies IS NULL "
        f"GROUP BY {same}, evaluations.verdict, tier"
    )
    known = connection.execute(sa.text("SELECT * FROM verdict_counts")).mappings()
    full = {tuple(row[name] for name in _COUNTED): int(row["count"]) for row in known}
    rows = [dict(row) for row in connection.execute(sa.text(below)).mappings()]
    for row in rows:
        key = tuple(row[name] for name in _COUNTED)
        full[key] = full.get(key, 0) - int(row["count"])
    rows += [{**dict(zip(_COUNTED, key, strict=True)), "tier": "full", "count": n} for key, n in full.items() if n > 0]
    _replace_counts(rows, (*_COUNTED, "tier"))


def _replace_counts(rows: list[dict[str, Any]], key: Sequence[str]) -> None:
    """Make the table of counts anew, with ``key`` as its primary key: SQLite changes none."""
    op.drop_table("verdict_counts")
    counts = op.create_table(
        "verdict_counts",
        *(sa.Column(name, CleanText(), nullable=False) for name in key),
        sa.Column("count", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint(*key, name="pk_verdict_counts"),
    )
    op.bulk_insert(counts, rows)
