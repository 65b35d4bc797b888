"""Schema and sessions: migrations, and many processes on one database."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sqlite3
import subprocess
import threading
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Engine, create_engine, inspect, make_url, text
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.orm import Session, sessionmaker

from evaluator.interpreter import python_command, python_environment
from runtime.settings import Settings
from storage.database import (
    CommitMark,
    DatabaseUnusable,
    alembic_config,
    create_engine_for,
    migrate,
    obstacle_of,
    prepare_database,
    session_factory,
)
from storage.ids import new_id
from storage.leaderboards.history import rankings_of
from storage.leaderboards.read import leaderboard_entries
from storage.models import Base
from storage.queue.workers import heartbeat, list_workers, register
from tests.services import running_postgresql
from tests.storage.conftest import Finish


def test_the_migrated_schema_is_that_of_the_models(engine: Engine) -> None:
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, Base.metadata) == []


def test_migrations_go_down_to_nothing_and_up_again(settings: Settings, engine: Engine) -> None:
    config = alembic_config()
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.downgrade(config, "base")
    assert inspect(engine).get_table_names() == ["alembic_version"]
    migrate(settings)
    assert set(inspect(engine).get_table_names()) == {"alembic_version", *Base.metadata.tables}


def test_a_newer_schema_is_refused_in_one_line(settings: Settings, engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(DatabaseUnusable, match="the schema is at version 9999") as refused:
        prepare_database(settings)
    assert "\n" not in str(refused.value)


def test_a_file_that_is_no_database_is_refused_in_one_line(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path)
    (tmp_path / "kerneljudge.db").write_bytes(b"no database " * 1000)
    begin = time.monotonic()
    with pytest.raises(DatabaseUnusable, match="file is not a database") as refused:
        prepare_database(settings, patience_s=60)
    assert "\n" not in str(refused.value)
    assert time.monotonic() - begin < 20, "waiting makes it no better"


def test_a_server_that_permits_nothing_is_not_called_damaged(new_postgresql_database: Callable[[], str]) -> None:
    url = make_url(new_postgresql_database())
    stranger = new_id("stranger")
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.exec_driver_sql(f"CREATE ROLE {stranger} LOGIN")
    engine.dispose()
    settings = Settings(database_url=url.set(username=stranger).render_as_string(hide_password=False))
    with pytest.raises(DatabaseUnusable, match="the database cannot be used: permission denied"):
        prepare_database(settings)


def test_a_server_that_starts_meanwhile_is_waited_for() -> None:
    with running_postgresql() as server:
        settings = Settings(database_url=f"{server.url}/postgres")
        server.stop(signal.SIGINT)
        with pytest.raises(DatabaseUnusable, match="cannot be used"):
            prepare_database(settings)
        with ThreadPoolExecutor(1) as waiting:
            prepared = waiting.submit(prepare_database, settings, patience_s=60)
            time.sleep(1.5)
            assert not prepared.done()
            server.start()  # in this thread: it ends with the one that starts it
            prepared.result(60)


@pytest.mark.parametrize("module", ["storage.migrate", "api", "worker --queue build", "worker.webhook_sender"])
def test_no_process_shows_a_traceback_of_a_database_that_is_none(tmp_path: Path, module: str) -> None:
    (tmp_path / "kerneljudge.db").write_bytes(b"no database " * 1000)
    environment = python_environment({**os.environ, "KERNELJUDGE_DATA_DIR": str(tmp_path)})
    argv = python_command("-m", *module.split())
    ended = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 3
    assert ended.stderr.strip().splitlines()[-1].endswith("file is not a database")
    assert "Traceback" not in ended.stderr


def test_a_full_disk_is_not_called_an_unreachable_database(engine: Engine) -> None:
    fill = "DO $$ BEGIN RAISE EXCEPTION 'no space' USING ERRCODE = '53100'; END $$"
    with engine.begin() as connection:
        if engine.dialect.name == "sqlite":
            pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
            connection.exec_driver_sql(f"PRAGMA max_page_count = {pages}")
            fill = "CREATE TABLE large AS SELECT randomblob(1000000) AS content"
        with pytest.raises(DBAPIError) as failed:
            connection.exec_driver_sql(fill)
        connection.rollback()
    assert obstacle_of(failed.value) == "the disk of the database is full"
    assert obstacle_of(ValueError()) == "the database cannot be reached at the moment"


def test_a_wait_for_a_connection_is_not_called_an_unreachable_database(tmp_path: Path) -> None:
    engine = create_engine(f"sqlite:///{tmp_path}/one.db", pool_size=1, max_overflow=0, pool_timeout=0.01)
    with engine.connect(), pytest.raises(PoolTimeout) as failed:
        engine.connect()
    engine.dispose()
    assert obstacle_of(failed.value) == "the database is too busy at the moment"


def test_an_error_of_sqlite_that_says_more_has_the_words_of_its_kind(tmp_path: Path) -> None:
    first, second = (sqlite3.connect(tmp_path / "one.db", isolation_level=None) for _ in range(2))
    with contextlib.closing(first), contextlib.closing(second):
        first.execute("PRAGMA journal_mode = WAL")
        first.execute("CREATE TABLE t (x)")
        first.execute("BEGIN")
        first.execute("SELECT * FROM t").fetchall()
        second.execute("INSERT INTO t VALUES (1)")
        with pytest.raises(sqlite3.OperationalError) as failed:
            first.execute("INSERT INTO t VALUES (2)")
    assert failed.value.sqlite_errorcode == sqlite3.SQLITE_BUSY_SNAPSHOT
    assert obstacle_of(OperationalError("INSERT", {}, failed.value)) == "the database is too busy at the moment"


def test_several_processes_may_migrate_at_once(empty_settings: Settings) -> None:
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=migrate, args=(empty_settings,)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0, 0]
    engine = create_engine_for(empty_settings)
    assert set(inspect(engine).get_table_names()) == {"alembic_version", *Base.metadata.tables}
    engine.dispose()


def test_the_text_of_a_databases_error_has_no_data(engine: Engine) -> None:
    # The digest is left out, which it must not be.
    secret = " ".join(("hidden", "source"))  # a traceback quotes this line
    statement = text("INSERT INTO sources (text) VALUES (:secret)")
    with pytest.raises(DBAPIError) as failed, engine.begin() as connection:
        connection.execute(statement, {"secret": secret})
    said = "".join(traceback.format_exception(failed.value))
    assert "INSERT INTO sources" in said
    assert secret not in said


def test_a_commit_shows_in_the_mark_of_an_sqlite_file_alone(
    settings: Settings, sessions: sessionmaker[Session]
) -> None:
    mark = CommitMark(settings)
    before = mark.read()
    assert mark.read() == before
    with sessions.begin() as session:
        register(session, "w", kind="build", queues=["build"], device=None, capabilities={})
        during = mark.read()
    after = mark.read()
    mark.close()
    if settings.database_url.startswith("sqlite"):
        assert before is not None
        assert during == before
        assert after not in {before, None}
    else:
        assert (before, during, after) == (None, None, None)


def test_a_database_that_is_not_there_yet_has_no_mark_and_is_not_made(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path)
    mark = CommitMark(settings)
    assert mark.read() is None
    assert list(tmp_path.iterdir()) == []
    migrate(settings)
    assert mark.read() is not None
    mark.close()


def test_a_read_only_session_refuses_to_write(engine: Engine, sessions: sessionmaker[Session]) -> None:
    readers = session_factory(engine, read_only=True)
    with pytest.raises(DBAPIError), readers.begin() as session:
        register(session, "w", kind="build", queues=["build"], device=None, capabilities={})
    with sessions.begin() as session:
        register(session, "w", kind="build", queues=["build"], device=None, capabilities={})
    with readers() as session:
        assert [worker.id for worker in list_workers(session)] == ["w"]


def test_an_engine_for_reading_refuses_to_write_and_sees_what_was_committed(
    settings: Settings, sessions: sessionmaker[Session]
) -> None:
    engine = create_engine_for(settings, read_only=True)
    readers = session_factory(engine, read_only=True)
    with pytest.raises(DBAPIError), readers.begin() as session:
        register(session, "w", kind="build", queues=["build"], device=None, capabilities={})
    with readers() as session:
        assert list_workers(session) == []
    with sessions.begin() as session:
        register(session, "w", kind="build", queues=["build"], device=None, capabilities={})
    with readers() as session:
        assert [worker.id for worker in list_workers(session)] == ["w"]
    engine.dispose()


@pytest.mark.parametrize("read_only", [False, True])
def test_a_connection_that_ended_while_nobody_used_it_is_replaced(
    new_postgresql_database: Callable[[], str], monkeypatch: pytest.MonkeyPatch, read_only: bool
) -> None:
    monkeypatch.setattr("storage.postgresql._RESTED_S", 0.0)
    settings = Settings(database_url=new_postgresql_database())
    engine, other = create_engine_for(settings, read_only=read_only), create_engine_for(settings)
    with engine.connect() as connection:
        ended = connection.scalar(text("SELECT pg_backend_pid()"))
    with other.connect() as connection:
        connection.execute(text("SELECT pg_terminate_backend(:pid, 5000)"), {"pid": ended})
    with engine.connect() as connection:
        assert connection.scalar(text("SELECT pg_backend_pid()")) != ended
    engine.dispose()
    other.dispose()


def test_a_reader_does_not_wait_for_a_writer(engine: Engine, sessions: sessionmaker[Session]) -> None:
    with sessions.begin() as writer:
        register(writer, "w", kind="build", queues=["build"], device=None, capabilities={})
        with session_factory(engine, read_only=True)() as reader:
            assert list_workers(reader) == []


def test_concurrent_writers_wait_their_turn(sessions: sessionmaker[Session]) -> None:
    with sessions.begin() as session:
        register(session, "w", kind="build", queues=["build"], device=None, capabilities={})
    errors: list[BaseException] = []

    def read_then_write() -> None:
        try:
            for _ in range(25):
                with sessions.begin() as session:
                    # Reading first is what makes a plain BEGIN fail with "database is locked".
                    list_workers(session)
                    heartbeat(session, "w", None)
        except DBAPIError as error:
            errors.append(error)

    threads = [threading.Thread(target=read_then_write) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


def test_sqlite_is_durable_and_checks_references(engine: Engine) -> None:
    if engine.dialect.name != "sqlite":
        return
    with engine.connect() as connection:
        assert connection.execute(text("PRAGMA journal_mode")).scalar() == "wal"
        assert connection.execute(text("PRAGMA foreign_keys")).scalar() == 1
        assert connection.execute(text("PRAGMA busy_timeout")).scalar() == 30_000


def test_a_database_in_memory_is_refused() -> None:
    with pytest.raises(ValueError, match="must be a file"):
        create_engine_for(Settings(database_url="sqlite://"))


def test_migrations_keep_what_is_stored(engine: Engine, settings: Settings, finish: Finish) -> None:
    submission_id = finish(metadata={"a": 1})
    for target in ("0002", "head"):
        with engine.begin() as connection:
            config = alembic_config()
            config.attributes["connection"] = connection
            (command.downgrade if target != "head" else command.upgrade)(config, target)
    with engine.connect() as connection:
        stored = connection.execute(text("SELECT id, queue_rank, dedup_key FROM submissions")).one()
        assert tuple(stored) == (submission_id, 0, None)
        assert connection.execute(text("SELECT count(*) FROM attempts")).scalar() == 2


def test_a_schema_without_tiers_takes_no_figures_that_it_would_rank(engine: Engine, finish: Finish) -> None:
    finish(tier="quick")
    config = alembic_config()
    with engine.connect() as connection:
        config.attributes["connection"] = connection
        with pytest.raises(RuntimeError, match="1 submissions are of the tiers"):
            command.downgrade(config, "0014")


def test_rankings_are_put_together_and_split_by_software_again(
    engine: Engine, settings: Settings, finish: Finish, sessions: sessionmaker[Session]
) -> None:
    def graded(source: str, torch: str, speedup: float, author: str) -> str:
        environment = {"device_name": "a processor", "torch": torch, **({"cuda": "13.0"} if torch > "2.11" else {})}
        return finish(source, author=author, evaluation={"environment": environment, "speedup": speedup})

    def shown() -> dict[str, list[str]]:
        with sessions() as session:
            return {
                ranking.software: [entry.submission_id for entry in leaderboard_entries(session, ranking)]
                for ranking in rankings_of(session, "relu")
                if ranking.track == "inference"
            }

    slow, other = graded("# 1", "2.10.0", 1.5, "ada"), graded("# 2", "2.10.0", 1.2, "bob")
    fast = graded("# 1", "2.11.0", 2.0, "ada")
    before = shown()
    assert before == {"torch 2.10.0": [slow, other], "torch 2.11.0, CUDA 13.0": [fast]}
    with engine.begin() as connection:
        config = alembic_config()
        config.attributes["connection"] = connection
        command.downgrade(config, "0004")
        # Of the two with the same source and author, the better one.
        kept = connection.execute(text("SELECT submission_id FROM standings ORDER BY speedup DESC")).scalars().all()
        assert kept == [fast, other]
        assert tuple(connection.execute(text("SELECT entries, best FROM rankings")).one()) == (2, 2.0)
        bests = connection.execute(text("SELECT author, submission_id FROM author_bests ORDER BY author")).all()
        assert [tuple(row) for row in bests] == [("ada", fast), ("bob", other)]
    migrate(settings)
    assert shown() == {"torch 2.10.0": [other], "torch 2.11.0, CUDA 13.0": [fast]}
    with engine.connect() as connection:
        records = connection.execute(text("SELECT submission_id FROM ranking_records ORDER BY speedup")).scalars().all()
        assert records == [slow, fast]
        assert compare_metadata(MigrationContext.configure(connection), Base.metadata) == []
