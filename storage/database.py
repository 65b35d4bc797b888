"""Engines, sessions and the schema.

SQLite runs in WAL mode. A session that writes takes the write lock when it begins (``BEGIN IMMEDIATE``), so that it
waits for the lock instead of failing half-way. A session made with ``read_only`` never waits for a writer and refuses
to write. On PostgreSQL, an engine made with ``read_only`` saves readers the two round trips around each transaction.
"""

from __future__ import annotations

import contextlib
import fcntl
import math
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, create_engine, event, make_url, text
from sqlalchemy.exc import DatabaseError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.orm import Session, sessionmaker

from runtime.settings import Settings
from storage.metrics.counters import forget_noted, write_noted
from storage.postgresql import READ_ONLY, TRANSACTION_ENDED, postgresql_engine

__all__ = [
    "CommitMark",
    "DatabaseUnusable",
    "alembic_config",
    "create_engine_for",
    "migrate",
    "obstacle_of",
    "prepare_database",
    "refuse_foreign_schema",
    "schema_fault",
    "session_factory",
]

BUSY_TIMEOUT_S: Final = 30.0
_ASKED_AGAIN_S: Final = 1.0
_VERSION_READ_S: Final = 5.0
_BUSY: Final = "the database is too busy at the moment"
_OBSTACLES: Final[dict[object, str]] = {
    **dict.fromkeys((sqlite3.SQLITE_FULL, "53100"), "the disk of the database is full"),
    **dict.fromkeys((sqlite3.SQLITE_BUSY, "55P03"), _BUSY),
    **dict.fromkeys((sqlite3.SQLITE_READONLY, READ_ONLY), "the database takes no changes at the moment"),
    "53200": "the machine of the database has no memory left",
    "57014": "the database took too long for this request",
    **dict.fromkeys(TRANSACTION_ENDED, "the request took too long, and the database has ended it"),
}
"""Words for errors of SQLite, by the first byte of its code, and of PostgreSQL, by its SQLSTATE."""
_MIGRATION_LOCK: Final = 0x6B6A_6D69  # any number that nothing else locks


def create_engine_for(settings: Settings, *, read_only: bool = False, bounded: bool = True) -> Engine:
    """Return an engine for ``settings.database_url``. Makes the folder of an SQLite file, not its schema.

    With ``read_only``, the engine refuses to write, and on PostgreSQL it commits each statement by itself. A
    transaction makes no difference to readers there, since each statement sees the data committed when it begins.
    ``bounded``: whether PostgreSQL ends statements and idle transactions after a minute. Raises ``ValueError`` for an
    SQLite database that is not a file.
    """
    url = make_url(settings.database_url)
    # A statement has sources and keys as its parameters. The text of its error goes into logs and traces.
    options: Any = {"hide_parameters": True, "execution_options": {"read_only": True} if read_only else {}}
    if url.get_backend_name() != "sqlite":
        return postgresql_engine(url, read_only=read_only, bounded=bounded, options=options)
    if url.database in (None, "", ":memory:"):
        raise ValueError("an SQLite database must be a file: several processes share it")
    Path(str(url.database)).parent.mkdir(parents=True, exist_ok=True)
    engine = create_engine(url, connect_args={"timeout": BUSY_TIMEOUT_S}, **options)
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def session_factory(engine: Engine, *, read_only: bool = False) -> sessionmaker[Session]:
    """Return a factory of sessions whose objects stay readable after the commit.

    Counts noted in a session are written with its commit.
    """
    if read_only and not engine.get_execution_options().get("read_only"):
        engine = engine.execution_options(read_only=True, postgresql_readonly=True)
    sessions = sessionmaker(engine, expire_on_commit=False)
    if not read_only:
        event.listen(sessions, "before_commit", write_noted)
        event.listen(sessions, "after_rollback", forget_noted)
    return sessions


class CommitMark:
    """A detector of commits to an SQLite file (``PRAGMA data_version``), which answers within microseconds."""

    def __init__(self, settings: Settings) -> None:
        url = make_url(settings.database_url)
        self._path = url.database if url.get_backend_name() == "sqlite" else None
        self._connection: sqlite3.Connection | None = None

    def read(self) -> int | None:
        """Return a number that changes with each commit.

        ``None`` for other databases, and for a file that is missing or that a writer has locked.
        """
        if self._path is None:
            return None
        try:
            if self._connection is None:
                uri = f"{Path(self._path).absolute().as_uri()}?mode=ro"
                self._connection = sqlite3.connect(uri, timeout=0.0, check_same_thread=False, uri=True)
            found: int = self._connection.execute("PRAGMA data_version").fetchone()[0]
        except sqlite3.Error:
            self.close()
            return None
        return found

    def close(self) -> None:
        """Close the file. Idempotent."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(sqlite3.Error):
                connection.close()


class DatabaseUnusable(RuntimeError):
    """The database cannot be reached, is damaged, or has a newer schema. The message is one line for the operator."""


def prepare_database(settings: Settings, *, patience_s: float = 0.0) -> None:
    """Bring the schema to the newest version. Wait up to ``patience_s`` seconds for a server that is not there yet.

    Raises ``DatabaseUnusable``.
    """
    deadline = time.monotonic() + patience_s
    while True:
        try:
            return migrate(settings)
        except OperationalError as error:
            if time.monotonic() >= deadline or make_url(settings.database_url).get_backend_name() == "sqlite":
                raise DatabaseUnusable(f"the database cannot be used: {_one_line(error.orig)}") from error
            time.sleep(_ASKED_AGAIN_S)
        except DatabaseError as error:
            sqlite = isinstance(error.orig, sqlite3.Error)
            fault = "is damaged, or is none" if sqlite else "cannot be used"
            raise DatabaseUnusable(f"the database {fault}: {_one_line(error.orig)}") from error


def obstacle_of(error: Exception) -> str:
    """Return the reason, in words for everybody, why a database could not do its work."""
    if isinstance(error, PoolTimeout):
        return _BUSY
    original = getattr(error, "orig", None)
    code = getattr(original, "sqlite_errorcode", None)
    # The higher bytes say more about the same error.
    code = getattr(original, "sqlstate", None) if code is None else code & 0xFF
    return _OBSTACLES.get(code, "the database cannot be reached at the moment")


def _one_line(error: object) -> str:
    return " ".join(str(error).split())


def migrate(settings: Settings) -> None:
    """Bring the schema to the newest version. Several processes may call it at once.

    Raises ``DatabaseUnusable`` where the schema is newer than this code, and the errors of the database.
    """
    engine = create_engine_for(settings, bounded=False)  # a migration may take long, and others wait for it
    try:
        with _one_at_a_time(engine), engine.begin() as connection:
            config = alembic_config()
            config.attributes["connection"] = connection
            _refuse_newer(connection, config)
            command.upgrade(config, "head")
    finally:
        engine.dispose()


def _refuse_newer(connection: Connection, config: Config) -> None:
    known = {revision.revision for revision in ScriptDirectory.from_config(config).walk_revisions()}
    found = MigrationContext.configure(connection).get_current_revision()
    if found is not None and found not in known:
        raise DatabaseUnusable(
            f"the schema is at version {found}, which this version of kerneljudge does not know: install a newer one, "
            "or restore the copy from before the upgrade"
        )


def schema_fault(session: Session) -> str | None:
    """Return the fault of the schema's version; ``None`` where it is the version that this code needs."""
    return _schema_fault(session.connection(), _needed_version())


def refuse_foreign_schema(sessions: sessionmaker[Session]) -> None:
    """Make each transaction of ``sessions`` raise ``DatabaseUnusable`` where the schema is of another version.

    A process that goes on while another one upgrades the schema would write rows as it knows them. The version is read
    every few seconds.
    """
    needed, lock = _needed_version(), threading.Lock()
    looked_at, fault = -math.inf, None

    def begun(_session: Session, _transaction: object, connection: Connection) -> None:
        nonlocal looked_at, fault
        with lock:
            due = time.monotonic() - looked_at >= _VERSION_READ_S
            looked_at = time.monotonic() if due else looked_at
        if due:
            fault = _schema_fault(connection, needed)
        if fault is not None:
            raise DatabaseUnusable(fault)

    event.listen(sessions, "after_begin", begun)


def _needed_version() -> str | None:
    return ScriptDirectory.from_config(alembic_config()).get_current_head()


def _schema_fault(connection: Connection, needed: str | None) -> str | None:
    found = MigrationContext.configure(connection).get_current_revision()
    return None if found == needed else f"the schema is at version {found or 'none'}, and {needed} is needed"


def alembic_config() -> Config:
    """Return Alembic's configuration; the caller puts a ``connection`` into its ``attributes``."""
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    return config


@contextmanager
def _one_at_a_time(engine: Engine) -> Iterator[None]:
    if engine.dialect.name == "sqlite":
        with Path(f"{engine.url.database}.migrate.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        return
    with engine.connect() as connection:
        connection.execute(text("SELECT pg_advisory_lock(:key)"), {"key": _MIGRATION_LOCK})
        try:
            yield
        finally:
            connection.execute(text("SELECT pg_advisory_unlock(:key)"), {"key": _MIGRATION_LOCK})


def _prepare_sqlite(connection: Any, _record: object) -> None:
    # The driver must not begin transactions by itself: _begin_sqlite says how they begin.
    connection.isolation_level = None
    cursor = connection.cursor()
    cursor.execute("PRAGMA journal_mode = WAL")
    cursor.execute("PRAGMA synchronous = FULL")
    cursor.execute("PRAGMA foreign_keys = ON")
    cursor.close()


def _begin_sqlite(connection: Connection) -> None:
    read_only = bool(connection.get_execution_options().get("read_only"))
    connection.exec_driver_sql(f"PRAGMA query_only = {'ON' if read_only else 'OFF'}")
    connection.exec_driver_sql("BEGIN" if read_only else "BEGIN IMMEDIATE")
