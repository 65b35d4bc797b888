"""What leaderboards are read from, filled from the evaluations that are there."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from storage.columns import CleanText, JsonData, UtcDateTime

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_KEY = ("problem", "problem_version", "device", "size", "precision", "baseline", "track", "device_name")


def upgrade() -> None:
    op.create_index("ix_submissions_problem_id", "submissions", ["problem", "id"])
    op.create_index("ix_submissions_author_id", "submissions", ["author", "id"])
    op.create_index("ix_submissions_label_id", "submissions", ["label", "id"])
    op.create_table(
        "rankings",
        sa.Column("id", sa.Integer(), nullable=False, autoincrement=True),
        *(sa.Column(name, CleanText(), nullable=False) for name in _KEY),
        sa.Column("entries", sa.Integer(), nullable=False),
        sa.Column("best", sa.Double(), nullable=False),
        sa.Column("baseline_ms", sa.Double(), nullable=True),
        sa.Column("compiled_ms", sa.Double(), nullable=True),
        sa.Column("bound_ms", sa.Double(), nullable=True),
        sa.Column("limited_by", CleanText(), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_rankings"),
        sa.UniqueConstraint(*_KEY, name="uq_rankings_key"),
    )
    op.create_table(
        "standings",
        sa.Column("ranking_id", sa.Integer(), nullable=False),
        sa.Column("contender", CleanText(), nullable=False),
        sa.Column("submission_id", CleanText(), nullable=False),
        sa.Column("author", CleanText(), nullable=True),
        sa.Column("label", CleanText(), nullable=True),
        sa.Column("source_digest", CleanText(), nullable=False),
        sa.Column("gradients", CleanText(), nullable=False),
        sa.Column("speedup", sa.Double(), nullable=False),
        sa.Column("speedup_low", sa.Double(), nullable=True),
        sa.Column("speedup_high", sa.Double(), nullable=True),
        sa.Column("level", sa.Double(), nullable=True),
        sa.Column("speedup_training", sa.Double(), nullable=True),
        sa.Column("training_low", sa.Double(), nullable=True),
        sa.Column("training_high", sa.Double(), nullable=True),
        sa.Column("speedup_compiled", sa.Double(), nullable=True),
        sa.Column("roofline_share", sa.Double(), nullable=True),
        sa.Column("latency_ms", sa.Double(), nullable=True),
        sa.Column("baseline_ms", sa.Double(), nullable=True),
        sa.Column("submitted_at", UtcDateTime(), nullable=False),
        sa.Column("finished_at", UtcDateTime(), nullable=False),
        sa.ForeignKeyConstraint(["ranking_id"], ["rankings.id"], name="fk_standings_ranking_id"),
        sa.ForeignKeyConstraint(["submission_id"], ["submissions.id"], name="fk_standings_submission_id"),
        sa.PrimaryKeyConstraint("ranking_id", "contender", name="pk_standings"),
    )
    op.create_table(
        "ranking_records",
        sa.Column("ranking_id", sa.Integer(), nullable=False),
        sa.Column("submission_id", CleanText(), nullable=False),
        sa.Column("speedup", sa.Double(), nullable=False),
        sa.Column("author", CleanText(), nullable=True),
        sa.Column("label", CleanText(), nullable=True),
        sa.Column("finished_at", UtcDateTime(), nullable=False),
        sa.ForeignKeyConstraint(["ranking_id"], ["rankings.id"], name="fk_ranking_records_ranking_id"),
        sa.ForeignKeyConstraint(["submission_id"], ["submissions.id"], name="fk_ranking_records_submission_id"),
        sa.PrimaryKeyConstraint("ranking_id", "submission_id", name="pk_ranking_records"),
    )
    op.create_table(
        "author_bests",
        sa.Column("ranking_id", sa.Integer(), nullable=False),
        sa.Column("author", CleanText(), nullable=False),
        sa.Column("submission_id", CleanText(), nullable=False),
        sa.Column("speedup", sa.Double(), nullable=False),
        sa.Column("log_speedup", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["ranking_id"], ["rankings.id"], name="fk_author_bests_ranking_id"),
        sa.ForeignKeyConstraint(["submission_id"], ["submissions.id"], name="fk_author_bests_submission_id"),
        sa.PrimaryKeyConstraint("ranking_id", "author", name="pk_author_bests"),
    )
    op.create_table(
        "verdict_counts",
        sa.Column("problem", CleanText(), nullable=False),
        sa.Column("problem_version", CleanText(), nullable=False),
        sa.Column("device", CleanText(), nullable=False),
        sa.Column("verdict", CleanText(), nullable=False),
        sa.Column("count", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("problem", "problem_version", "device", "verdict", name="pk_verdict_counts"),
    )
    _fill()
    # After the rows: indexes are made faster than they are kept.
    for column in (("speedup",), ("author", "speedup"), ("label", "speedup")):
        op.create_index(f"ix_standings_ranking_id_{'_'.join(column)}", "standings", ["ranking_id", *column])


def downgrade() -> None:
    op.drop_table("verdict_counts")
    op.drop_table("author_bests")
    op.drop_table("ranking_records")
    op.drop_table("standings")
    op.drop_table("rankings")
    op.drop_index("ix_submissions_label_id", "submissions")
    op.drop_index("ix_submissions_author_id", "submissions")
    op.drop_index("ix_submissions_problem_id", "submissions")


def _fill() -> None:
    """From the evaluations, as ``storage.leaderboards.entries`` would have done one by one."""
    connection = op.get_bind()
    if connection.dialect.name == "sqlite":
        # Not every SQLite has it.
        import math  # noqa: PLC0415 - of use here alone

        raw = connection.connection.dbapi_connection
        assert raw is not None
        raw.create_function("ln", 1, lambda value: math.log(value) if value and value > 0 else 0.0)
    metadata = sa.MetaData()
    submissions = sa.Table("submissions", metadata, autoload_with=connection)
    evaluations = sa.Table("evaluations", metadata, sa.Column("record", JsonData()), autoload_with=connection)
    rankings, standings, records, bests, counts = (
        sa.Table(name, metadata, autoload_with=connection)
        for name in ("rankings", "standings", "ranking_records", "author_bests", "verdict_counts")
    )
    both = submissions.join(evaluations, evaluations.c.submission_id == submissions.c.id)
    same = [submissions.c[name] for name in ("problem", "problem_version", "device")]
    _insert(counts, sa.select(*same, evaluations.c.verdict, sa.func.count()).select_from(both).group_by(
        *same, evaluations.c.verdict
    ))  # fmt: skip
    for track in ("inference", "training"):
        _fill_track(track, submissions, evaluations, rankings, standings, records)
    place = sa.func.row_number().over(
        partition_by=(standings.c.ranking_id, standings.c.author),
        order_by=(standings.c.speedup.desc(), standings.c.submission_id),
    )
    best_names = ("ranking_id", "author", "submission_id", "speedup")
    placed = sa.select(*(standings.c[name] for name in best_names), place.label("place"))
    placed = placed.where(standings.c.author.is_not(None), standings.c.speedup > 0)
    placed_rows = placed.subquery()
    first = sa.select(*(placed_rows.c[name] for name in best_names), sa.func.ln(placed_rows.c.speedup))
    _insert(bests, first.where(placed_rows.c.place == 1))


def _fill_track(
    track: str,
    submissions: sa.Table,
    evaluations: sa.Table,
    rankings: sa.Table,
    standings: sa.Table,
    records: sa.Table,
) -> None:
    record = evaluations.c.record
    speedup = evaluations.c.speedup if track == "inference" else evaluations.c.speedup_training
    interval = record["speedup_interval" if track == "inference" else "speedup_training_interval"]
    latency = record["latency_ms" if track == "inference" else "latency_training_ms"]
    roofline = record["roofline"][track]
    compiled = record["speedup_compiled"].as_float()
    device_name = sa.func.coalesce(evaluations.c.device_name, "")
    key = [
        *(submissions.c[name] for name in ("problem", "problem_version", "device", "size", "precision", "baseline")),
        sa.literal(track).label("track"),
        device_name.label("device_name"),
    ]
    contender = sa.case(
        (submissions.c.author.is_(None), submissions.c.source_digest),
        else_=submissions.c.source_digest + ":" + submissions.c.author,
    )
    admitted = [evaluations.c.verdict == "passed", submissions.c.status == "done", speedup.is_not(None)]
    if track == "training":
        admitted.append(evaluations.c.gradients == "match")
    place = sa.func.row_number().over(
        partition_by=(*key[:6], device_name, contender),
        order_by=(speedup.desc(), submissions.c.submitted_at, submissions.c.id),
    )
    share = roofline["share"].as_float()
    if track == "inference":
        share = sa.func.coalesce(share, record["roofline_share"].as_float())
    found = (
        sa.select(
            *key,
            contender.label("contender"),
            submissions.c.id.label("submission_id"),
            submissions.c.author,
            submissions.c.label,
            submissions.c.source_digest,
            evaluations.c.gradients,
            speedup.label("speedup"),
            interval["low"].as_float().label("speedup_low"),
            interval["high"].as_float().label("speedup_high"),
            interval["level"].as_float().label("level"),
            evaluations.c.speedup_training.label("speedup_training"),
            record["speedup_training_interval"]["low"].as_float().label("training_low"),
            record["speedup_training_interval"]["high"].as_float().label("training_high"),
            compiled.label("speedup_compiled"),
            share.label("roofline_share"),
            latency["candidate"].as_float().label("latency_ms"),
            latency["baseline"].as_float().label("baseline_ms"),
            submissions.c.submitted_at,
            submissions.c.finished_at,
            (latency["candidate"].as_float() * compiled).label("compiled_ms"),
            roofline["bound_ms"].as_float().label("bound_ms"),
            roofline["limited_by"].as_string().label("limited_by"),
            place.label("place"),
        )
        .select_from(submissions.join(evaluations, evaluations.c.submission_id == submissions.c.id))
        .where(*admitted)
        .subquery()
    )
    first = found.c.place == 1
    best_names = [column.name for column in key]
    # The reference's figures: any evaluation's will do until the next one comes.
    figures = [sa.func.max(found.c[name]) for name in ("baseline_ms", "compiled_ms", "bound_ms", "limited_by")]
    total = sa.select(*(found.c[name] for name in best_names), sa.func.count(), sa.func.max(found.c.speedup), *figures)
    total = total.where(first).group_by(*(found.c[name] for name in best_names))
    _insert(rankings, total, but=("id",))
    joined = sa.and_(*(rankings.c[name] == found.c[name] for name in best_names))
    columns = [found.c[column.name] for column in standings.columns if column.name != "ranking_id"]
    _insert(standings, sa.select(rankings.c.id, *columns).join_from(found, rankings, joined).where(first))
    # Whoever was faster than everybody before him, himself included.
    before = sa.func.max(found.c.speedup).over(
        partition_by=rankings.c.id, order_by=(found.c.finished_at, found.c.submission_id), rows=(None, -1)
    )
    names = ("submission_id", "speedup", "author", "label", "finished_at")
    in_turn = sa.select(rankings.c.id.label("ranking_id"), *(found.c[name] for name in names), before.label("before"))
    seen = in_turn.join_from(found, rankings, joined).subquery()
    fastest = sa.select(seen.c.ranking_id, *(seen.c[name] for name in names))
    _insert(records, fastest.where(seen.c.speedup > sa.func.coalesce(seen.c.before, 0.0)))


def _insert(table: sa.Table, rows: sa.Select[*tuple[object, ...]], but: tuple[str, ...] = ()) -> None:
    op.execute(sa.insert(table).from_select([c.name for c in table.columns if c.name not in but], rows))
