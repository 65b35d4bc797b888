"""Following a submission on the terminal."""

from __future__ import annotations

import time
from typing import Final

from kerneljudge.cli.output import say, stderr
from kerneljudge.cli.progress import ProgressLine
from kerneljudge.client import Client
from kerneljudge.records import SubmissionRecord

__all__ = ["watch", "watch_diagnosis"]

_POLL_S: Final = 0.5


def watch(client: Client, record: SubmissionRecord) -> SubmissionRecord:
    """Return the record once it is over. On Ctrl-C, the service goes on with it."""
    assert record["id"] is not None
    try:
        with ProgressLine(stderr()) as line:
            for event in client.events(record["id"]):
                record = event.record
                line.show(*_step(record))
    except KeyboardInterrupt:
        say(f"its grading continues: {client.url}{record['links']['page']}")
        raise
    return record


def watch_diagnosis(client: Client, record: SubmissionRecord) -> SubmissionRecord:
    """Return the record once its diagnosis is over, if one is under way.

    On Ctrl-C, return the record with its verdict.
    """
    assert record["id"] is not None
    try:
        with ProgressLine(stderr()) as line:
            while (known := record.get("diagnosis")) is not None and known["status"] in ("pending", "running"):
                line.show(f"diagnosis, {known['tool']}", known["message"] or known["status"])
                time.sleep(_POLL_S)
                record = client.get(record["id"])
    except KeyboardInterrupt:
        say(f"it goes on being diagnosed: {client.url}{record['links']['page']}")
    return record


def _step(record: SubmissionRecord) -> tuple[str, str, float | None]:
    progress = record["progress"]
    if progress is not None:
        return progress["stage"], progress["message"], progress["share"]
    position = record["queue_position"]
    parts = [record["message"], "" if position is None else f"number {position} in its queue"]
    return record["status"], ", ".join(part for part in parts if part), None
