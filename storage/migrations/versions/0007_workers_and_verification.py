"""What devices have and submissions ask for, in what condition workers are, rankings by software, and verification."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa
from alembic import op

from storage.columns import CleanText, JsonData, UtcDateTime

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

_KEY = ("problem", "problem_version", "device", "size", "precision", "baseline", "track", "device_name")
_OF_RANKINGS = ("standings", "ranking_records", "author_bests")
_ROWS_AT_ONCE = 1000


def upgrade() -> None:
    op.add_column("submissions", sa.Column("needs_device_name", CleanText(), nullable=True))
    op.add_column("submissions", sa.Column("needs_memory_bytes", sa.BigInteger(), nullable=True))
    op.add_column("submissions", sa.Column("needs_capability", sa.Integer(), nullable=True))
    op.add_column("submissions", sa.Column("verifies", CleanText(), nullable=True))
    op.create_index("ix_submissions_verifies", "submissions", ["verifies"])
    op.add_column("attempts", sa.Column("device", CleanText(), nullable=True))
    op.add_column("workers", sa.Column("state", CleanText(), nullable=False, server_default="ready"))
    op.add_column("workers", sa.Column("reason", CleanText(), nullable=False, server_default=""))
    op.add_column("workers", sa.Column("unchecked", JsonData(), nullable=False, server_default="[]"))
    op.add_column("standings", sa.Column("verification", CleanText(), nullable=True))
    op.create_table(
        "verifications",
        sa.Column("submission_id", CleanText(), nullable=False),
        sa.Column("status", CleanText(), nullable=False),
        sa.Column("message", CleanText(), nullable=False),
        sa.Column("requested_at", UtcDateTime(), nullable=False),
        sa.Column("finished_at", UtcDateTime(), nullable=True),
        sa.ForeignKeyConstraint(["submission_id"], ["submissions.id"], name="fk_verifications_submission_id"),
        sa.PrimaryKeyConstraint("submission_id", name="pk_verifications"),
    )
    with _rankings_alone(), op.batch_alter_table("rankings") as rankings:
        rankings.add_column(sa.Column("software", CleanText(), nullable=False, server_default=""))
        rankings.add_column(sa.Column("since", UtcDateTime(), nullable=True))
        rankings.drop_constraint("uq_rankings_key", type_="unique")
        rankings.create_unique_constraint("uq_rankings_key", [*_KEY, "software"])
    _split_by_software()
    first = "SELECT min(submitted_at) FROM standings WHERE ranking_id = rankings.id"
    op.execute(f"UPDATE rankings SET since = ({first})")  # noqa: S608 - a text from above


def downgrade() -> None:
    _merge_software()
    with _rankings_alone(), op.batch_alter_table("rankings") as rankings:
        rankings.drop_constraint("uq_rankings_key", type_="unique")
        rankings.create_unique_constraint("uq_rankings_key", list(_KEY))
        rankings.drop_column("since")
        rankings.drop_column("software")
    op.drop_table("verifications")
    op.drop_column("standings", "verification")
    for name in ("unchecked", "reason", "state"):
        op.drop_column("workers", name)
    op.drop_column("attempts", "device")
    again = "SELECT id FROM submissions WHERE verifies IS NOT NULL"
    for table in ("attempts", "diagnoses", "evaluations"):
        op.execute(f"DELETE FROM {table} WHERE submission_id IN ({again})")  # noqa: S608 - names from above
    op.execute("DELETE FROM submissions WHERE verifies IS NOT NULL")
    op.drop_index("ix_submissions_verifies", "submissions")
    for name in ("verifies", "needs_capability", "needs_memory_bytes", "needs_device_name"):
        op.drop_column("submissions", name)


@contextmanager
def _rankings_alone() -> Iterator[None]:
    """On SQLite a constraint is changed by making the table anew, which no row of another table may refer to then."""
    connection = op.get_bind()
    if connection.dialect.name != "sqlite":
        yield
        return
    metadata = sa.MetaData()
    children = [sa.Table(name, metadata, autoload_with=connection, resolve_fks=False) for name in _OF_RANKINGS]
    for child in children:
        op.execute(f"CREATE TEMP TABLE kept_{child.name} AS SELECT * FROM {child.name}")  # noqa: S608 - as above
        child.drop(connection)
    yield
    for name in ("rankings", "submissions"):
        sa.Table(name, metadata, autoload_with=connection)
    for child in children:
        child.create(connection)
        op.execute(f"INSERT INTO {child.name} SELECT * FROM kept_{child.name}")  # noqa: S608 - as above
        op.execute(f"DROP TABLE kept_{child.name}")


def _tables() -> dict[str, sa.Table]:
    connection, metadata = op.get_bind(), sa.MetaData()
    return {name: sa.Table(name, metadata, autoload_with=connection) for name in ("rankings", *_OF_RANKINGS)}


def _split_by_software() -> None:
    """Give each version of torch and CUDA its own ranking; where neither is known, all stays as it is."""
    connection, tables = op.get_bind(), _tables()
    rankings = tables["rankings"]
    evaluations = sa.table("evaluations", sa.column("submission_id"), sa.column("record", JsonData()))
    torch = evaluations.c.record["environment"]["torch"].as_string()
    cuda = evaluations.c.record["environment"]["cuda"].as_string()
    software = sa.literal("torch ") + torch + sa.func.coalesce(sa.literal(", CUDA ") + cuda, "")
    known = sa.select(evaluations.c.submission_id, software.label("software")).where(torch.is_not(None)).subquery()
    found = set()
    for name in ("standings", "ranking_records"):
        each = tables[name]
        pairs = sa.select(each.c.ranking_id, known.c.software).join(
            known, known.c.submission_id == each.c.submission_id
        )
        found |= {tuple(row) for row in connection.execute(pairs.distinct())}
    copied = [column.name for column in rankings.columns if column.name not in ("id", "software")]
    for ranking_id, version in sorted(found):
        same = sa.select(*(rankings.c[name] for name in copied), sa.literal(version)).where(rankings.c.id == ranking_id)
        connection.execute(sa.insert(rankings).from_select([*copied, "software"], same))
        new_id = connection.scalar(sa.select(sa.func.max(rankings.c.id)))
        those = sa.select(known.c.submission_id).where(known.c.software == version)
        for name in ("standings", "ranking_records"):
            each = tables[name]
            moved = sa.update(each).where(each.c.ranking_id == ranking_id, each.c.submission_id.in_(those))
            connection.execute(moved.values(ranking_id=new_id))
    _recount(tables)


def _merge_software() -> None:
    """Put the rankings of all versions together again: of each contender, the best."""
    connection, tables = op.get_bind(), _tables()
    rankings, standings = tables["rankings"], tables["standings"]
    connection.execute(sa.delete(tables["author_bests"]))
    first: dict[tuple[Any, ...], int] = {}
    for row in connection.execute(sa.select(rankings).order_by(rankings.c.id)).mappings().all():
        kept = first.setdefault(tuple(row[name] for name in _KEY), row["id"])
        if kept == row["id"]:
            continue
        other = standings.alias()
        for mine, theirs in ((row["id"], kept), (kept, row["id"])):
            # Of two that are as fast, the one that is there stays.
            beats = (
                other.c.speedup >= standings.c.speedup if mine == row["id"] else other.c.speedup > standings.c.speedup
            )
            better = sa.exists().where(other.c.ranking_id == theirs, other.c.contender == standings.c.contender, beats)
            connection.execute(sa.delete(standings).where(standings.c.ranking_id == mine, better))
        for name in ("standings", "ranking_records"):
            each = tables[name]
            connection.execute(sa.update(each).where(each.c.ranking_id == row["id"]).values(ranking_id=kept))
        connection.execute(sa.delete(rankings).where(rankings.c.id == row["id"]))
    _recount(tables)


def _recount(tables: dict[str, sa.Table]) -> None:
    """What rankings and the best of authors say of standings, made anew."""
    connection = op.get_bind()
    rankings, standings, bests = (tables[name] for name in ("rankings", "standings", "author_bests"))
    own = standings.c.ranking_id == rankings.c.id
    entries = sa.select(sa.func.count()).select_from(standings).where(own).scalar_subquery()
    best = sa.select(sa.func.coalesce(sa.func.max(standings.c.speedup), 0.0)).where(own).scalar_subquery()
    connection.execute(sa.update(rankings).values(entries=entries, best=best))
    connection.execute(sa.delete(bests))
    names = ("ranking_id", "author", "submission_id", "speedup")
    query = sa.select(*(standings.c[name] for name in names)).where(
        standings.c.author.is_not(None), standings.c.speedup > 0
    )
    order = (standings.c.ranking_id, standings.c.author, standings.c.speedup.desc(), standings.c.submission_id)
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in connection.execute(query.order_by(*order)).mappings():
        key = (row["ranking_id"], row["author"])
        rows.setdefault(key, {**row, "log_speedup": math.log(row["speedup"])})
    found = list(rows.values())
    for start in range(0, len(found), _ROWS_AT_ONCE):
        connection.execute(sa.insert(bests), found[start : start + _ROWS_AT_ONCE])
