"""Keys, what belongs to whom, who sees it, how much was asked for, and what was withdrawn."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from storage.columns import CleanText, JsonData, UtcDateTime

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for table in ("submissions", "batches"):
        op.add_column(table, sa.Column("owner", CleanText(), nullable=True))
        op.add_column(table, sa.Column("visibility", CleanText(), nullable=False, server_default="public"))
    op.add_column("submissions", sa.Column("withdrawn_at", UtcDateTime(), nullable=True))
    op.add_column("submissions", sa.Column("withdrawn_by", CleanText(), nullable=True))
    op.add_column("submissions", sa.Column("withdrawn_reason", CleanText(), nullable=True))
    op.create_index("ix_submissions_owner_id", "submissions", ["owner", "id"])
    op.create_table(
        "api_keys",
        sa.Column("id", CleanText(), nullable=False),
        sa.Column("digest", CleanText(), nullable=False),
        sa.Column("prefix", CleanText(), nullable=False),
        sa.Column("client", CleanText(), nullable=False),
        sa.Column("scopes", JsonData(), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("created_by", CleanText(), nullable=False),
        sa.Column("expires_at", UtcDateTime(), nullable=True),
        sa.Column("revoked_at", UtcDateTime(), nullable=True),
        sa.Column("last_used_at", UtcDateTime(), nullable=True),
        sa.Column("requests_per_min", sa.Integer(), nullable=True),
        sa.Column("submissions_per_day", sa.Integer(), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_api_keys"),
    )
    op.create_index("ix_api_keys_digest", "api_keys", ["digest"], unique=True)
    op.create_table(
        "sign_ins",
        sa.Column("digest", CleanText(), nullable=False),
        sa.Column("key_id", CleanText(), nullable=False),
        sa.Column("expires_at", UtcDateTime(), nullable=False),
        sa.ForeignKeyConstraint(["key_id"], ["api_keys.id"], name="fk_sign_ins_key_id"),
        sa.PrimaryKeyConstraint("digest", name="pk_sign_ins"),
    )
    op.create_index("ix_sign_ins_key_id", "sign_ins", ["key_id"])
    op.create_table(
        "usage",
        sa.Column("kind", CleanText(), nullable=False),
        sa.Column("began_at", UtcDateTime(), nullable=False),
        sa.Column("subject", CleanText(), nullable=False),
        sa.Column("count", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("kind", "began_at", "subject", name="pk_usage"),
    )
    op.create_table(
        "audit_events",
        sa.Column("id", CleanText(), nullable=False),
        sa.Column("at", UtcDateTime(), nullable=False),
        sa.Column("actor", CleanText(), nullable=True),
        sa.Column("action", CleanText(), nullable=False),
        sa.Column("subject", CleanText(), nullable=False),
        sa.Column("details", JsonData(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_audit_events"),
    )


def downgrade() -> None:
    for table in ("submissions", "batches"):
        kept = op.get_bind().scalar(sa.text(f"SELECT count(*) FROM {table} WHERE visibility <> 'public'"))  # noqa: S608
        if kept:
            raise RuntimeError(
                f"{kept} {table} are not public, and the schema before 0008 would show them to everybody. If that is "
                f"meant, set the column visibility of {table} to public"
            )
    op.drop_table("audit_events")
    op.drop_table("usage")
    op.drop_index("ix_sign_ins_key_id", "sign_ins")
    op.drop_table("sign_ins")
    op.drop_index("ix_api_keys_digest", "api_keys")
    op.drop_table("api_keys")
    op.drop_index("ix_submissions_owner_id", "submissions")
    for name in ("withdrawn_reason", "withdrawn_by", "withdrawn_at"):
        op.drop_column("submissions", name)
    for table in ("batches", "submissions"):
        op.drop_column(table, "visibility")
        op.drop_column(table, "owner")
