"""Workers, and the health of the service."""

from __future__ import annotations

from typing import Any, Literal

from typing_extensions import NotRequired, TypedDict

from kerneljudge.records.types import Timestamp, WorkerStateName

__all__ = ["Health", "WorkerList", "WorkerRecord"]


class WorkerRecord(TypedDict):
    """A worker process."""

    id: str
    kind: str
    alive: bool
    queues: list[str]
    device: str | None
    capabilities: dict[str, Any]
    current_submission: str | None
    """Null as well where it is not visible to you."""
    state: WorkerStateName
    """`ready`; `testing`: it tests itself first; `unhealthy`: its device is not fit at the moment; `out`: its device
    was taken out until a self-test passes; `stopping`.
    """
    reason: str
    """The reason why it takes no work, where it takes none."""
    unchecked: list[str]
    """The checks of its device's health that could not be made."""
    started: Timestamp
    heartbeat: Timestamp


class WorkerList(TypedDict):
    """Every worker of the last hour."""

    items: list[WorkerRecord]


class Health(TypedDict):
    """Whether the service can do its work."""

    status: Literal["ok"]
    problems: NotRequired[int | None]
    degraded: NotRequired[list[str]]
    """The parts that are impaired, while requests are answered."""
