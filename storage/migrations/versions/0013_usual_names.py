"""Columns and a table get the usual names: wake-ups, fair-queue ranks, deduplication and leaderboard entries."""

from __future__ import annotations

from collections.abc import Iterable

from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

_Index = tuple[str, tuple[str, ...], bool]
"""A table, its columns in the index, and whether their values are unique."""

_TABLES = ("standings", "leaderboard_entries")
_COLUMNS = (
    ("submissions", "bells", "wakeups"),
    ("submissions", "bell_due_at", "wakeup_due_at"),
    ("submissions", "turn", "queue_rank"),
    ("submissions", "share_key", "dedup_key"),
    ("diagnoses", "bells", "wakeups"),
    ("diagnoses", "bell_due_at", "wakeup_due_at"),
    ("leaderboard_entries", "contender", "entry_key"),
)
_OLD_INDEXES = (
    ("submissions", ("status", "stage", "device", "turn", "id"), False),
    ("submissions", ("share_key",), True),
    ("standings", ("ranking_id", "certain_speedup"), False),
    ("standings", ("ranking_id", "author", "certain_speedup"), False),
    ("standings", ("ranking_id", "label", "certain_speedup"), False),
)
_NEW_NAMES = {_TABLES[0]: _TABLES[1], **{old: new for _, old, new in _COLUMNS}}
_NEW_INDEXES = tuple(
    (_NEW_NAMES.get(table, table), tuple(_NEW_NAMES.get(name, name) for name in columns), unique)
    for table, columns, unique in _OLD_INDEXES
)
_CONSTRAINTS = ("pk_{}", "fk_{}_ranking_id", "fk_{}_submission_id")


def upgrade() -> None:
    _drop_indexes(_OLD_INDEXES)
    _rename_table(*_TABLES)
    for table, old, new in _COLUMNS:
        op.alter_column(table, old, new_column_name=new)
    _create_indexes(_NEW_INDEXES)


def downgrade() -> None:
    _drop_indexes(_NEW_INDEXES)
    for table, old, new in _COLUMNS:
        op.alter_column(table, new, new_column_name=old)
    _rename_table(*reversed(_TABLES))
    _create_indexes(_OLD_INDEXES)


def _rename_table(old: str, new: str) -> None:
    op.rename_table(old, new)
    if op.get_bind().dialect.name == "postgresql":  # SQLite knows no other name than the one that a table was made with
        for name in _CONSTRAINTS:
            op.execute(f"ALTER TABLE {new} RENAME CONSTRAINT {name.format(old)} TO {name.format(new)}")


def _drop_indexes(indexes: Iterable[_Index]) -> None:
    for table, columns, _ in indexes:
        op.drop_index(_name(table, columns), table_name=table)


def _create_indexes(indexes: Iterable[_Index]) -> None:
    for table, columns, unique in indexes:
        op.create_index(_name(table, columns), table, list(columns), unique=unique)


def _name(table: str, columns: Iterable[str]) -> str:
    return "_".join(["ix", table, *columns])
