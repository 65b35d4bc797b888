"""Columns and a table get the usual names: wake-ups, fair-queue ranks, deduplication and leaderboard entries."""

from __future__ import annotations

from collections.abc import Iterable

from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

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
_INDEXES = (
    ("submissions", ("status", "stage", "device", "turn", "id"), False),
    ("submissions", ("share_key",), True),
    ("standings", ("ranking_id", "certain_speedup"), False),
    ("standings", ("ranking_id", "author", "certain_speedup"), False),
    ("standings", ("ranking_id", "label", "certain_speedup"), False),
)
_CONSTRAINTS = ("pk_{}", "fk_{}_ranking_id", "fk_{}_submission_id")


def upgrade() -> None:
    new_columns = {old: new for _, old, new in _COLUMNS}
    _drop_indexes(_INDEXES)
    _rename_table(*_TABLES)
    for table, old, new in _COLUMNS:
        op.alter_column(table, old, new_column_name=new)
    for table, columns, unique in _INDEXES:
        _create_index(
            _TABLES[1] if table == _TABLES[0] else table, [new_columns.get(name, name) for name in columns], unique
        )


def downgrade() -> None:
    new_columns = {old: new for _, old, new in _COLUMNS}
    _drop_indexes(
        (_TABLES[1] if table == _TABLES[0] else table, [new_columns.get(name, name) for name in columns], unique)
        for table, columns, unique in _INDEXES
    )
    for table, old, new in _COLUMNS:
        op.alter_column(table, new, new_column_name=old)
    _rename_table(*reversed(_TABLES))
    for table, columns, unique in _INDEXES:
        _create_index(table, columns, unique)


def _rename_table(old: str, new: str) -> None:
    op.rename_table(old, new)
    if op.get_bind().dialect.name == "postgresql":  # SQLite knows no other name than the one that a table was made with
        for name in _CONSTRAINTS:
            op.execute(f"ALTER TABLE {new} RENAME CONSTRAINT {name.format(old)} TO {name.format(new)}")


def _drop_indexes(indexes: Iterable[tuple[str, Iterable[str], bool]]) -> None:
    for table, columns, _ in indexes:
        op.drop_index(_name(table, columns), table_name=table)


def _create_index(table: str, columns: Iterable[str], unique: bool) -> None:
    op.create_index(_name(table, columns), table, list(columns), unique=unique)


def _name(table: str, columns: Iterable[str]) -> str:
    return "_".join(["ix", table, *columns])
