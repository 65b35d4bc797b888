"""The end of a command: its last output, and its exit status.

The status is 0 for passed or done, 1 for a candidate that did not pass, 2 for bad usage, and 3 for our fault.
"""

from __future__ import annotations

import contextlib
import json
import traceback
from collections.abc import Callable, Iterator, Mapping
from enum import IntEnum
from typing import Any, NoReturn

import typer
from rich.console import Console

from kerneljudge.cli import render
from kerneljudge.errors import ClientError, RequestRefused
from kerneljudge.grading.sources import UnusableFile
from kerneljudge.records import SubmissionRecord
from kerneljudge.terms.faults import EvaluatorError, ProblemError
from kerneljudge.terms.outcomes import Status, Verdict

__all__ = ["BadUsage", "ExitStatus", "as_error", "emit", "exit_status", "finish", "say", "stderr", "turned_into_exits"]

Explain = Callable[[str], None]


class BadUsage(ValueError):
    """An argument of the command line refers to something missing, or is not valid."""


class ExitStatus(IntEnum):
    """The exit status of a command."""

    OK = 0
    NOT_PASSED = 1
    USAGE = 2
    FAULT = 3


def stderr() -> Console:
    """Return the present standard error, where users read messages while a command works."""
    return Console(stderr=True)


def say(message: str) -> None:
    """Print one line for the user, with control characters removed."""
    stderr().print(render.plain(message), markup=False, highlight=False, soft_wrap=True)


def emit(content: Mapping[str, Any]) -> None:
    """Print exactly one JSON object on standard output."""
    # The output is ASCII only, so that every reader decodes it correctly in any encoding.
    typer.echo(json.dumps(content, indent=2))


def exit_status(record: SubmissionRecord) -> ExitStatus:
    """Return 0 for passed, 1 for not passed, and 3 for not graded."""
    if record["status"] != Status.DONE:
        return ExitStatus.FAULT
    return ExitStatus.OK if record["verdict"] == Verdict.PASSED else ExitStatus.NOT_PASSED


def finish(record: SubmissionRecord, *, as_json: bool) -> None:
    """Print the final record, and exit with its status."""
    if as_json:
        emit(record)
    else:
        render.write(render.submission(record))
    raise typer.Exit(exit_status(record))


def as_error(as_json: bool) -> Explain | None:
    """Return the function that reports an error as JSON on standard output; ``None`` without ``--json``."""
    return (lambda message: emit({"error": message})) if as_json else None


@contextlib.contextmanager
def turned_into_exits(explain: Explain | None = None) -> Iterator[None]:
    """Turn every exception inside into the right exit status. ``explain`` gets the message."""
    try:
        yield
    except (BadUsage, UnusableFile, ProblemError, RequestRefused) as error:
        _leave(ExitStatus.USAGE, str(error), explain)
    except (ClientError, EvaluatorError) as error:
        _leave(ExitStatus.FAULT, str(error), explain)
    except (typer.Exit, typer.BadParameter):
        raise
    except Exception as error:  # noqa: BLE001 - a bug of ours must not look like a verdict (status 1)
        stderr().print(traceback.format_exc(), markup=False, highlight=False)
        _leave(ExitStatus.FAULT, f"{type(error).__name__}: {error}", explain)


def _leave(status: ExitStatus, message: str, explain: Explain | None) -> NoReturn:
    say(f"kerneljudge: {message}")
    if explain is not None:
        explain(message)
    raise typer.Exit(status) from None
