"""Keys, quotas, and what belongs to whom, on either database."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest
from alembic import command
from sqlalchemy import Engine, select, text
from sqlalchemy.orm import Session, sessionmaker

from storage.access.keys import Keys, Scope, UnknownKey
from storage.access.quotas import QuotaSpent, add_requests, charge_submissions, delete_expired, refund_submissions
from storage.access.visibility import Viewer, Visibility, owned_key
from storage.batches.batches import Batches
from storage.database import alembic_config
from storage.models import Submission, Usage
from tests.storage.conftest import Submit


def test_only_the_hash_of_a_key_is_kept(sessions: sessionmaker[Session], engine: Engine) -> None:
    with sessions.begin() as session:
        key, token = Keys(session).create("ada", [Scope.SUBMIT], by="operator")
        sign_in = Keys(session).sign_in(key)
    assert token.startswith(key.prefix)
    assert len(token) > len(key.prefix) + 30
    with engine.connect() as connection:
        for table in ("api_keys", "sign_ins", "audit_events"):
            rows = str(connection.execute(text(f"SELECT * FROM {table}")).all())  # noqa: S608 - names of ours
            assert token not in rows
            assert sign_in not in rows
    with sessions() as session:
        assert getattr(Keys(session).good(token), "id", None) == key.id
        assert getattr(Keys(session).signed_in(sign_in), "id", None) == key.id
        for wrong in ("", token[:-1], token + "x", "\udcff", "\x00"):
            assert Keys(session).good(wrong) is None
            assert Keys(session).signed_in(wrong) is None


def test_what_was_revoked_or_has_expired_is_good_for_nothing(sessions: sessionmaker[Session]) -> None:
    with sessions.begin() as session:
        keys = Keys(session)
        key, token = keys.create("ada", [Scope.SUBMIT], by="operator")
        sign_in = keys.sign_in(key)
        _, late = keys.create("ada", [Scope.SUBMIT], by="operator", expires_in=timedelta(seconds=0))
        assert keys.good(late) is None
        revoked = keys.revoke(key.id, by="operator").revoked_at
        assert keys.good(token) is keys.signed_in(sign_in) is None
        assert keys.revoke(key.id, by="somebody else").revoked_at == revoked
        with pytest.raises(UnknownKey):
            keys.revoke("key_none", by="operator")


def test_the_last_use_is_written_once_a_minute(sessions: sessionmaker[Session]) -> None:
    with sessions.begin() as session:
        keys = Keys(session)
        key, _ = keys.create("ada", [Scope.READ], by="operator")
        keys.used([key.id])
        first = keys.get(key.id).last_used_at
        keys.used([key.id])
        assert first is not None
        assert keys.get(key.id).last_used_at == first


def test_a_quota_is_exact_whoever_hands_in_at_the_same_time(sessions: sessionmaker[Session]) -> None:
    def hand_in(_: int) -> bool:
        try:
            with sessions.begin() as session:
                charge_submissions(session, "key_a", 3, 10)
        except QuotaSpent:
            return False
        return True

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(hand_in, range(8))) == 3
    with sessions.begin() as session:
        day = charge_submissions(session, "key_a", 1, 10)
        refund_submissions(session, "key_a", day, 4)
        charge_submissions(session, "key_a", 4, 10)
        charge_submissions(session, "key_b", 10, 10)
    with sessions.begin() as session, pytest.raises(QuotaSpent) as refused:
        charge_submissions(session, "key_b", 1, 10)
    assert 0 < refused.value.retry_after_s <= 24 * 3600


def test_old_counts_are_forgotten(sessions: sessionmaker[Session]) -> None:
    now = datetime.now(UTC).replace(second=0, microsecond=0)
    with sessions.begin() as session:
        add_requests(session, now - timedelta(hours=2), {"key:a": 1})
        assert add_requests(session, now, {"key:a": 2, "key:b": 1}) == {"key:a": 2, "key:b": 1}
        assert add_requests(session, now, {"key:a": 5}) == {"key:a": 7}
        day = charge_submissions(session, "key_a", 1, 10)
        delete_expired(session)
        assert set(session.scalars(select(Usage.began_at))) == {now, day}


def test_a_viewer_sees_the_same_in_a_query_as_in_a_row(sessions: sessionmaker[Session], submit: Submit) -> None:
    owners = (None, "ada", "bob")
    rows = [(owner, visibility) for owner in owners for visibility in Visibility]
    for owner, visibility in rows:
        submit(owner=owner, visibility=visibility)
    clients = (Viewer(), Viewer("ada"), Viewer("eve"), Viewer("ada", everything=True), Viewer(everything=True))
    viewers = (*clients, Viewer("ada", own_only=True), Viewer("eve", own_only=True), Viewer(own_only=True))
    with sessions() as session:
        for viewer in viewers:
            every = session.scalars(select(Submission)).all()
            assert len(every) == len(rows)
            for sees, condition in (
                (viewer.sees, viewer.visible(Submission)),
                (viewer.sees_source, viewer.source_visible(Submission)),
            ):
                found = set(session.scalars(select(Submission.id).where(condition)))
                assert found == {row.id for row in every if sees(row)}
        own = set(session.scalars(select(Submission.id).where(Viewer("ada", own_only=True).visible(Submission))))
        assert own == {row.id for row in session.scalars(select(Submission)) if row.owner == "ada"}
    assert not Viewer().owns(Submission(owner=None))
    assert not Viewer(own_only=True).sees(Submission(owner=None, visibility="public"))


def test_no_administrator_sees_its_own_alone(sessions: sessionmaker[Session]) -> None:
    with sessions.begin() as session, pytest.raises(ValueError, match="sees everything"):
        Keys(session).create("root", [Scope.ADMIN], by="operator", own_only=True)


def test_a_schema_without_keys_for_their_own_alone_takes_none_that_is_in_use(
    sessions: sessionmaker[Session], engine: Engine
) -> None:
    with sessions.begin() as session:
        key, token = Keys(session).create("agent", [Scope.SUBMIT], by="operator", own_only=True)
    with pytest.raises(RuntimeError, match="1 keys see their client's submissions alone"):
        _move(engine, "0015")
    with sessions.begin() as session:
        good = Keys(session).good(token)
        assert good is not None
        assert good.own_only
        Keys(session).revoke(key.id, by="operator")
    _move(engine, "0015")
    _move(engine, "head")
    with sessions() as session:
        assert not Keys(session).get(key.id).own_only


def test_one_clients_idempotency_key_is_not_anothers() -> None:
    assert owned_key(None, "k") == "k"
    assert owned_key("ada", None) is None
    assert len({owned_key(owner, "k") for owner in (None, "ada", "bob")}) == 3


def _move(engine: Engine, target: str) -> None:
    with engine.begin() as connection:
        config = alembic_config()
        config.attributes["connection"] = connection
        (command.downgrade if target != "head" else command.upgrade)(config, target)


def test_what_was_there_before_keys_is_public_and_nobodys(
    sessions: sessionmaker[Session], engine: Engine, submit: Submit
) -> None:
    submission_id = submit(owner="ada", visibility=Visibility.PUBLIC)
    for target in ("0004", "head"):
        _move(engine, target)
    with sessions() as session:
        submission = session.get_one(Submission, submission_id)
        assert (submission.owner, submission.visibility, submission.withdrawn_at) == (None, "public", None)


@pytest.mark.parametrize("visibility", [Visibility.PRIVATE, Visibility.SOURCE_HIDDEN])
@pytest.mark.parametrize("table", ["submissions", "batches"])
def test_what_is_not_public_does_not_become_so_by_going_back(
    sessions: sessionmaker[Session], engine: Engine, submit: Submit, visibility: Visibility, table: str
) -> None:
    kept = visibility if table == "submissions" else Visibility.PUBLIC
    submission_id = submit(owner="ada", visibility=kept)
    with sessions.begin() as session:
        of_batch = visibility if table == "batches" else Visibility.PUBLIC
        Batches(session).create(name="n", owner="ada", visibility=of_batch)
    with pytest.raises(RuntimeError, match=f"1 {table} are not public"):
        _move(engine, "0007")
    with sessions() as session:
        assert session.get_one(Submission, submission_id).visibility == kept
