"""Log lines with the fields of their context: as text, or as one JSON object a line. Torch-free.

The subject of a line (a submission, a request, a trace) is in its *fields*: those of its context, and its own
(``extra={"fields": {...}}``). Processes that a supervisor leads log through it, and need not know the submission that
they work for. Their ``report`` has the number of the supervisor's request, and the supervisor knows its subject.
"""

from __future__ import annotations

import contextlib
import json
import logging
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, Final, Literal

__all__ = ["QUIET", "LogFormat", "about", "add_fields", "configure", "current_fields", "relay", "report"]

LogFormat = Literal["text", "json"]

QUIET: Final = ("alembic", "celery", "httpx", "httpcore", "kombu", "urllib3")
"""Loggers of which only warnings are written."""

_MARK: Final = "kerneljudge-report "

_fields: Final[ContextVar[Mapping[str, str]]] = ContextVar("log_fields", default={})  # noqa: B039 - never changed
_log = logging.getLogger(__name__)


def current_fields() -> Mapping[str, str]:
    """Return the fields of a line that is written here and now."""
    return _fields.get()


@contextlib.contextmanager
def about(**fields: str) -> Iterator[None]:
    """Add ``fields`` to the fields of everything that is logged within."""
    token = _fields.set({**_fields.get(), **fields})
    try:
        yield
    finally:
        _fields.reset(token)


def add_fields(**fields: str) -> None:
    """Add ``fields`` to the lines from here to the end of the surrounding ``about``."""
    _fields.set({**_fields.get(), **fields})


def configure(form: LogFormat, level: str) -> None:
    """Write everything of ``level`` and above to standard error, for as long as this process lives."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonFormatter() if form == "json" else _TextFormatter())
    logging.basicConfig(level=level, handlers=[handler], force=True)
    for name in QUIET:
        logging.getLogger(name).setLevel(max(logging.WARNING, logging.getLogger().level))
    logging.captureWarnings(True)


def report(logger: str, message: str, number: int) -> None:
    """Have the supervisor of this process log ``message``, with the exception that is being handled.

    ``number`` is that of the supervisor's request. It works without the logging module, because that module is the
    candidate's in some of these processes.
    """
    told = {"logger": logger, "message": message, "number": number, "exception": traceback.format_exc().rstrip()}
    with contextlib.suppress(OSError, ValueError):
        print(_MARK + json.dumps(told), file=sys.stderr, flush=True)


def relay(line: str, called: str, about_number: Callable[[int | None], Mapping[str, str]]) -> None:
    """Log a line that a process below this one, named ``called``, has written to its standard error.

    ``about_number`` returns the fields of its request by the number, or of its latest request.
    """
    told = _reported(line)
    if told is None:
        _log.warning("%s: %s", called, line, extra={"fields": about_number(None)})
        return
    logger = logging.getLogger(told["logger"])
    record = logger.makeRecord(logger.name, logging.ERROR, "", 0, told["message"], (), None)
    record.fields = about_number(told["number"])
    record.exc_text = told["exception"]
    logger.handle(record)


def _reported(line: str) -> dict[str, Any] | None:
    """Parse a line of ``report``; ``None`` for other lines."""
    if not line.startswith(_MARK):
        return None
    with contextlib.suppress(ValueError):
        told: dict[str, Any] = json.loads(line.removeprefix(_MARK))
        return told
    return None


class _JsonFormatter(logging.Formatter):
    """One object a line: ``time`` (UTC), ``level``, ``logger``, ``message``, the fields, ``exception``."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="microseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        exception = record.exc_text or (self.formatException(record.exc_info) if record.exc_info else "")
        if exception:
            line["exception"] = exception
        return json.dumps({**_fields_of(record), **line})


class _TextFormatter(logging.Formatter):
    """Time, level, logger, the fields in brackets, message."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s [%(about)s] %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        fields = _fields_of(record)
        record.about = " ".join(value for name, value in fields.items() if name != "trace_id") or "-"
        return super().format(record)


def _fields_of(record: logging.LogRecord) -> Mapping[str, str]:
    return {**current_fields(), **getattr(record, "fields", {})}
