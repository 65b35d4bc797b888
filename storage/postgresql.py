"""Engines for PostgreSQL: bounded in time, checked after a rest, and without data in the texts of errors."""

from __future__ import annotations

import threading
import time
from collections.abc import Generator, Mapping, Sequence
from typing import Any, Final, TypeVar

import psycopg
from sqlalchemy import URL, Engine, ExceptionContext, create_engine, event
from sqlalchemy.exc import InternalError, InvalidatePoolError, OperationalError
from sqlalchemy.pool import ConnectionPoolEntry

__all__ = ["READ_ONLY", "TRANSACTION_ENDED", "postgresql_engine"]

READ_ONLY: Final = "25006"
"""The SQLSTATE of a server that takes no changes, such as a standby."""
TRANSACTION_ENDED: Final = ("25P03", "25P04")
"""The SQLSTATEs where the server has ended a transaction that took too long."""

_RESTED_S: Final = 1.0
_CONNECT_S: Final = 3
_POOL_S: Final = 10.0
"""The longest wait for a connection that another thread uses."""
_STATEMENT_S: Final = 60
_PATIENCE_S: Final = 65.0
"""The longest wait for an answer: longer than the server lets a statement run, for a server that has stopped."""
_UNHEARD_MS: Final = 5_000
"""The longest time for which sent data stays unacknowledged. On a network that drops packets, no error ever comes."""
_SLOW_S: Final = 1.0
_REST_S: Final = 1.0
_CLIENT: Final[Mapping[str, int]] = {
    "connect_timeout": _CONNECT_S,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": _UNHEARD_MS,
}
# The server must not keep the locks of a machine that was switched off within a transaction.
_SERVER: Final[Mapping[str, str]] = {
    "statement_timeout": f"{_STATEMENT_S}s",
    "idle_in_transaction_session_timeout": f"{_STATEMENT_S}s",
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
}

_T = TypeVar("_T")


def postgresql_engine(url: URL, *, read_only: bool, bounded: bool, options: Mapping[str, Any]) -> Engine:
    """Return an engine for ``url``, with further ``options`` of SQLAlchemy's.

    With ``read_only`` the server refuses to write, and each statement is a transaction. ``bounded``: whether statements
    and idle transactions end after a minute. Connecting always ends within seconds.
    """
    given = {name: value for name, value in _CLIENT.items() if name not in url.query}
    isolation: Any = {"isolation_level": "AUTOCOMMIT"} if read_only else {}
    engine = create_engine(url, connect_args=given, pool_timeout=_POOL_S, **options, **isolation)
    event.listen(engine, "do_connect", _Connector(_BoundedConnection if bounded else psycopg.Connection))
    event.listen(engine, "handle_error", _hide_rows)
    event.listen(engine, "handle_error", _as_operational, retval=True)
    _ping_after_a_rest(engine)
    settings = dict(_SERVER) if bounded else {}
    if read_only:
        settings["default_transaction_read_only"] = "on"
    statements = "; ".join(f"SET {name} = '{value}'" for name, value in settings.items())

    def prepare(connection: Any, _record: object) -> None:
        connection.execute(statements)
        connection.commit()

    if statements:
        event.listen(engine, "connect", prepare)
    return engine


class _BoundedConnection(psycopg.Connection[Any]):
    """A connection that is closed where the server has not answered for ``_PATIENCE_S``."""

    def wait(self, gen: Any, *args: Any, **options: Any) -> Any:
        """Wait for ``gen`` as psycopg does. Raises ``OperationalError``."""
        try:
            return super().wait(_within(gen, time.monotonic() + _PATIENCE_S), *args, **options)
        except _NoAnswer as error:
            self.pgconn.finish()
            raise psycopg.OperationalError(f"no answer within {_PATIENCE_S:.0f} s") from error


class _NoAnswer(Exception):
    """The server has not answered for too long."""


def _within(gen: Generator[Any, Any, _T], deadline: float) -> Generator[Any, Any, _T]:
    """Pass ``gen`` on. Raises ``_NoAnswer`` after ``deadline``, a time of the monotonic clock, in seconds."""
    ready = None
    while True:
        try:
            wanted = gen.send(ready)
        except StopIteration as ended:
            value: _T = ended.value
            return value
        if time.monotonic() >= deadline:
            raise _NoAnswer
        # psycopg comes back every tenth of a second, with or without an answer.
        ready = yield wanted


class _Connector:
    """Connects. While the server cannot be reached, one caller at a time tries, and the others fail at once.

    Otherwise each thread of the API would wait in turn, and requests that need no database behind them.
    """

    def __init__(self, kind: type[psycopg.Connection[Any]]) -> None:
        self._kind = kind
        self._lock = threading.Lock()
        self._away = False
        self._trying = False
        self._again_at = 0.0

    def __call__(self, _dialect: object, _record: object, args: Sequence[Any], parameters: Mapping[str, Any]) -> Any:
        with self._lock:
            if self._away and (self._trying or time.monotonic() < self._again_at):
                raise psycopg.OperationalError("the server could not be reached a moment ago")
            self._trying = self._away
        begin = time.monotonic()
        away = True
        try:
            connection = self._kind.connect(*args, **parameters)
            away = False
        except psycopg.Error:
            away = time.monotonic() - begin >= _SLOW_S  # an error that comes at once keeps nobody waiting
            raise
        finally:
            with self._lock:
                self._away, self._trying = away, False
                self._again_at = time.monotonic() + _REST_S
        return connection


def _ping_after_a_rest(engine: Engine) -> None:
    """Ping a connection before its use, if it has been idle for ``_RESTED_S``.

    The ping notices a server that was restarted meanwhile, before a caller sees an error. Connections in constant use
    save the round trip, at the cost of an error or two at the restart.
    """
    dialect = engine.dialect

    def used(_connection: object, record: ConnectionPoolEntry) -> None:
        record.info["used_at"] = time.monotonic()

    def wanted(connection: Any, record: ConnectionPoolEntry, _proxy: object) -> None:
        if time.monotonic() - record.info["used_at"] < _RESTED_S:
            return
        try:
            dialect.do_ping(connection)
        except dialect.loaded_dbapi.Error as error:
            raise InvalidatePoolError("the server has ended this connection") from error

    event.listen(engine, "connect", used)
    event.listen(engine, "checkin", used)
    event.listen(engine, "checkout", wanted)


def _hide_rows(context: ExceptionContext) -> None:
    """Take the details out of an error's text. PostgreSQL writes the whole row there, or the values of a key."""
    original, wrapped = context.original_exception, context.sqlalchemy_exception
    primary = getattr(getattr(original, "diag", None), "message_primary", None)
    if primary is None:
        return
    whole = str(original)
    original.args = (primary,)
    if wrapped is not None:
        wrapped.args = (str(wrapped.args[0]).replace(whole, primary),)


def _as_operational(context: ExceptionContext) -> BaseException | None:
    """Return the error of a server that is there but does not work as an ``OperationalError``; ``None``: no change.

    The driver has all errors about the state of a transaction as internal ones.
    """
    original, wrapped = context.original_exception, context.sqlalchemy_exception
    passing = getattr(original, "sqlstate", None) in (READ_ONLY, *TRANSACTION_ENDED)
    if not passing or not isinstance(wrapped, InternalError):
        return None
    return OperationalError(
        wrapped.statement,
        wrapped.params,
        original,
        hide_parameters=wrapped.hide_parameters,
        connection_invalidated=wrapped.connection_invalidated,
    )
