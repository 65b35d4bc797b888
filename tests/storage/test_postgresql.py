"""Waits for a PostgreSQL that does not answer are short."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.exc import OperationalError

from runtime.settings import Settings
from storage.database import create_engine_for, obstacle_of
from tests.services import running_postgresql


@pytest.fixture
def silent_url() -> Iterator[str]:
    """The address of a server that takes connections and never answers, as a network that drops packets."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"postgresql+psycopg://kerneljudge@127.0.0.1:{server.getsockname()[1]}/kerneljudge"


def _seconds_until_it_fails(engine: Engine) -> float:
    begin = time.monotonic()
    with pytest.raises(OperationalError), engine.connect() as connection:
        connection.execute(text("SELECT 1"))
    return time.monotonic() - begin


def test_who_connects_to_a_silent_server_fails_in_seconds_and_then_at_once(silent_url: str) -> None:
    engine = create_engine_for(Settings(database_url=silent_url))
    assert 1 < _seconds_until_it_fails(engine) < 10
    assert _seconds_until_it_fails(engine) < 0.5
    # Some time later one tries again.
    time.sleep(1.1)
    assert _seconds_until_it_fails(engine) > 1
    engine.dispose()


def test_a_server_that_comes_back_is_used_again() -> None:
    with running_postgresql() as server:
        engine = create_engine_for(Settings(database_url=f"{server.url}/postgres"))
        with server.paused():
            _seconds_until_it_fails(engine)
        time.sleep(1.1)
        with engine.connect() as connection:
            assert connection.scalar(text("SELECT 1")) == 1
        engine.dispose()


@pytest.mark.parametrize("read_only", [False, True])
def test_who_waits_for_a_server_that_stopped_fails_in_time(read_only: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("storage.postgresql._PATIENCE_S", 1.0)
    with running_postgresql() as server:
        engine = create_engine_for(Settings(database_url=f"{server.url}/postgres"), read_only=read_only)
        with engine.connect() as connection:
            connection.execute(text("SELECT 1"))
        with server.paused():
            assert 0.9 < _seconds_until_it_fails(engine) < 10
        with engine.connect() as connection:
            assert connection.scalar(text("SELECT 1")) == 1
        engine.dispose()


@pytest.mark.parametrize(("read_only", "bounded"), [(False, True), (True, True), (False, False)])
def test_the_server_ends_what_takes_too_long_unless_it_is_a_migration(
    new_postgresql_database: Callable[[], str], read_only: bool, bounded: bool
) -> None:
    engine = create_engine_for(Settings(database_url=new_postgresql_database()), read_only=read_only, bounded=bounded)
    with engine.connect() as connection:
        limits = [
            connection.scalar(text(f"SHOW {name}"))
            for name in ("statement_timeout", "idle_in_transaction_session_timeout", "default_transaction_read_only")
        ]
    engine.dispose()
    minute = "1min" if bounded else "0"
    assert limits == [minute, minute, "on" if read_only else "off"]


def test_a_server_that_takes_no_changes_is_a_passing_fault(new_postgresql_database: Callable[[], str]) -> None:
    engine = create_engine_for(Settings(database_url=new_postgresql_database()))
    with engine.connect() as connection:
        connection.execute(text("SET TRANSACTION READ ONLY"))
        with pytest.raises(OperationalError) as failed:
            connection.execute(text("CREATE TABLE t AS SELECT :name AS value"), {"name": "a parameter of mine"})
    engine.dispose()
    assert obstacle_of(failed.value) == "the database takes no changes at the moment"
    assert "of mine" not in str(failed.value)


def test_a_transaction_that_the_server_has_ended_is_a_passing_fault(new_postgresql_database: Callable[[], str]) -> None:
    engine = create_engine_for(Settings(database_url=new_postgresql_database()))
    with engine.connect() as connection:
        connection.execute(text("SET LOCAL idle_in_transaction_session_timeout = '100ms'"))
        time.sleep(0.5)
        with pytest.raises(OperationalError) as failed:
            connection.execute(text("SELECT 1"))
    assert obstacle_of(failed.value) == "the request took too long, and the database has ended it"
    with engine.connect() as connection:
        assert connection.scalar(text("SELECT 1")) == 1
    engine.dispose()


def test_an_address_may_name_limits_of_its_own(silent_url: str) -> None:
    engine = create_engine_for(Settings(database_url=f"{silent_url}?connect_timeout=2"))
    assert _seconds_until_it_fails(engine) < 2.9
    engine.dispose()
