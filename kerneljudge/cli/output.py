"""How a command ends: what it prints last, and its exit status.

0: passed, or done. 1: the candidate did not pass. 2: bad usage. 3: the fault is ours.
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

from evaluator.errors import EvaluatorError, ProblemError
from evaluator.evaluation import Status, Verdict
from kerneljudge.cli import render
from kerneljudge.errors import ClientError, RequestRefused
from kerneljudge.grading.sources import UnusableFile
from kerneljudge.records import SubmissionRecord

__all__ = ["BadUsage", "ExitStatus", "emit", "exit_status", "finish", "say", "stderr", "turned_into_exits"]

Explain = Callable[[str], None]


class BadUsage(ValueError):
    """What was asked for on the command line is not there, or cannot be."""


class ExitStatus(IntEnum):
    """What a shell is told."""

    OK = 0
    NOT_PASSED = 1
    USAGE = 2
    FAULT = 3


def stderr() -> Console:
    """Standard error as it is now; what the user reads while a command works."""
    return Console(stderr=True)


def say(message: str) -> None:
    """One line for the user, whatever characters are in it."""
    stderr().print(render.plain(message), markup=False, highlight=False, soft_wrap=True)


def emit(content: Mapping[str, Any]) -> None:
    """Exactly one JSON object on standard output."""
    # ASCII only: whatever reads it, in whatever encoding, gets what was meant.
    typer.echo(json.dumps(content, indent=2))


def exit_status(record: SubmissionRecord) -> ExitStatus:
    """0 passed, 1 did not pass, 3 was not graded."""
    if record["status"] != Status.DONE:
        return ExitStatus.FAULT
    return ExitStatus.OK if record["verdict"] == Verdict.PASSED else ExitStatus.NOT_PASSED


def finish(record: SubmissionRecord, *, as_json: bool) -> None:
    """Print the final record and leave with its exit status."""
    if as_json:
        emit(record)
    else:
        render.write(render.submission(record))
    raise typer.Exit(exit_status(record))


@contextlib.contextmanager
def turned_into_exits(explain: Explain | None = None) -> Iterator[None]:
    """Ends with the right exit status whatever goes wrong inside; ``explain`` hears why."""
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
