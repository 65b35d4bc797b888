"""Ranks are by the lower end of each interval, and what is unsettled is measured again a few times."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from storage.columns import JsonData

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

_RANKED = ("standings", "author_bests", "ranking_records")
_BY_WHICH: tuple[tuple[str, ...], ...] = ((), ("author",), ("label",))


def upgrade() -> None:
    op.add_column("submissions", sa.Column("unsettled", sa.Integer(), nullable=False, server_default="0"))
    for name in ("certain_speedup", "certain_speedup_training"):
        op.add_column("evaluations", sa.Column(name, sa.Double(), nullable=True))
    for name in _RANKED:
        op.add_column(name, sa.Column("certain_speedup", sa.Double(), nullable=False, server_default="0"))
    _index_by("speedup", "certain_speedup")
    tables = _tables()
    _fill_evaluations(tables["evaluations"])
    _fill_rankings(tables)


def downgrade() -> None:
    _index_by("certain_speedup", "speedup")
    for name in _RANKED:
        op.drop_column(name, "certain_speedup")
    for name in ("certain_speedup", "certain_speedup_training"):
        op.drop_column("evaluations", name)
    op.drop_column("submissions", "unsettled")


def _index_by(before: str, after: str) -> None:
    for which in _BY_WHICH:
        op.drop_index("_".join(["ix_standings_ranking_id", *which, before]), "standings")
        op.create_index(
            "_".join(["ix_standings_ranking_id", *which, after]), "standings", ["ranking_id", *which, after]
        )


def _tables() -> dict[str, sa.Table]:
    connection, metadata = op.get_bind(), sa.MetaData()
    found = {name: sa.Table(name, metadata, autoload_with=connection) for name in (*_RANKED, "rankings")}
    columns = ("submission_id", "speedup", "speedup_training", "certain_speedup", "certain_speedup_training")
    evaluations = sa.table("evaluations", *(sa.column(name) for name in columns), sa.column("record", JsonData()))
    return {**found, "evaluations": evaluations}  # type: ignore[dict-item]


def _fill_evaluations(evaluations: sa.Table) -> None:
    for figure in ("speedup", "speedup_training"):
        low = evaluations.c.record[f"{figure}_interval"]["low"].as_float()
        certain = sa.func.coalesce(low, evaluations.c[figure])
        filled = sa.update(evaluations).where(evaluations.c[figure].is_not(None))
        op.execute(filled.values({f"certain_{figure}": certain}))


def _fill_rankings(tables: dict[str, sa.Table]) -> None:
    """Of what was a record by its speedup alone, only what is one by its lower end stays."""
    connection = op.get_bind()
    rankings, standings, evaluations = (tables[name] for name in ("rankings", "standings", "evaluations"))
    low = sa.func.coalesce(standings.c.speedup_low, standings.c.speedup)
    connection.execute(sa.update(standings).values(certain_speedup=low))
    for name in ("author_bests", "ranking_records"):
        each = tables[name]
        track = sa.select(rankings.c.track).where(rankings.c.id == each.c.ranking_id)
        certain = sa.case(
            (track.correlate(each).scalar_subquery() == "training", evaluations.c.certain_speedup_training),
            else_=evaluations.c.certain_speedup,
        )
        found = sa.select(certain).where(evaluations.c.submission_id == each.c.submission_id)
        connection.execute(
            sa.update(each).values(
                certain_speedup=sa.func.coalesce(found.correlate(each).scalar_subquery(), each.c.speedup)
            )
        )
    records = tables["ranking_records"]
    before = records.alias()
    beaten = sa.exists().where(
        before.c.ranking_id == records.c.ranking_id,
        before.c.finished_at < records.c.finished_at,
        before.c.certain_speedup >= records.c.certain_speedup,
    )
    connection.execute(sa.delete(records).where(beaten))
    own = standings.c.ranking_id == rankings.c.id
    best = sa.select(sa.func.coalesce(sa.func.max(standings.c.certain_speedup), 0.0)).where(own).scalar_subquery()
    connection.execute(sa.update(rankings).values(best=best))
