"""Eligibility: the requirements of submissions for a device, and the capabilities of workers' devices.

Requirements are columns of a submission. A worker therefore finds a submission that it can run with one query, however
many others wait before it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import and_, or_, true
from sqlalchemy.orm import Session

from storage.models import Stage, Submission
from storage.queue.celery_app import queue_name
from storage.queue.workers import Worker, list_workers

__all__ = [
    "NO_REQUIREMENTS",
    "DeviceCapabilities",
    "Requirements",
    "capabilities_of",
    "capability_number",
    "runs_on",
    "waiting_for",
]

_GIB: Final = 2**30
_NATIVE: Final = {"float32": 0, "float16": 53, "bfloat16": 80}
"""The least compute capability (times ten) that computes in a precision; CPUs compute in all of them."""

_CAPABILITY: Final = re.compile(r"(\d{1,3})\.(\d)")


@dataclass(frozen=True)
class Requirements:
    """The requirements of a submission for its device; ``None`` is no condition.

    ``memory_bytes``: the least memory. ``capability``: the least compute capability of a CUDA device, times ten.
    """

    device_name: str | None = None
    memory_bytes: int | None = None
    capability: int | None = None

    @classmethod
    def of(cls, submission: Submission) -> Requirements:
        """Return the requirements of a stored submission."""
        return cls(submission.needs_device_name, submission.needs_memory_bytes, submission.needs_capability)

    @property
    def columns(self) -> dict[str, Any]:
        """The requirements as columns of a submission's row."""
        return {
            "needs_device_name": self.device_name,
            "needs_memory_bytes": self.memory_bytes,
            "needs_capability": self.capability,
        }

    @property
    def words(self) -> str:
        """The requirements in words; empty where there are none."""
        parts = []
        if self.device_name is not None:
            parts.append(f"of the name {self.device_name}")
        if self.memory_bytes is not None:
            parts.append(f"with {self.memory_bytes / _GIB:g} GiB of memory")
        if self.capability is not None:
            parts.append(f"of compute capability {self.capability // 10}.{self.capability % 10} or more")
        return " and ".join(parts)


NO_REQUIREMENTS: Final = Requirements()


@dataclass(frozen=True)
class DeviceCapabilities:
    """The capabilities of a worker's device that decide which submissions it can run.

    An unknown capability excludes no submission, except one that requires a device's name. ``device_id`` is the same
    for all workers on this device, and differs from that of any other device.
    """

    device_id: str | None = None
    device_name: str | None = None
    memory_bytes: int | None = None
    capability: int | None = None

    @classmethod
    def of(cls, capabilities: Mapping[str, Any]) -> DeviceCapabilities:
        """Return the device of ``capabilities``, as a worker has registered them."""
        known = {name: capabilities.get(name) for name in ("device_id", "device_name", "memory_bytes")}
        return cls(**known, capability=capability_number(capabilities.get("compute_capability")))

    @property
    def lacking_precisions(self) -> tuple[str, ...]:
        """The precisions in which this device does not compute."""
        number = self.capability
        return () if number is None else tuple(name for name, least in _NATIVE.items() if number < least)

    def runs(self, requirements: Requirements, precision: str) -> bool:
        """Whether the device meets ``requirements`` and computes in ``precision``; ``runs_on`` is the same in SQL."""
        wanted = requirements
        return (
            (wanted.device_name is None or wanted.device_name == self.device_name)
            and (wanted.memory_bytes is None or self.memory_bytes is None or wanted.memory_bytes <= self.memory_bytes)
            and (wanted.capability is None or self.capability is None or wanted.capability <= self.capability)
            and precision not in self.lacking_precisions
        )


def capability_number(text: object) -> int | None:
    """Return a compute capability such as ``9.0``, times ten; ``None`` for any other value."""
    found = _CAPABILITY.fullmatch(text) if isinstance(text, str) else None
    return None if found is None else 10 * int(found[1]) + int(found[2])


def runs_on(device_capabilities: DeviceCapabilities | None) -> Any:
    """Return the SQL condition that a submission can run on the device; always true where that is ``None``."""
    if device_capabilities is None:
        return true()
    conditions = [
        or_(Submission.needs_device_name.is_(None), Submission.needs_device_name == device_capabilities.device_name)
    ]
    for column, there in (
        (Submission.needs_memory_bytes, device_capabilities.memory_bytes),
        (Submission.needs_capability, device_capabilities.capability),
    ):
        if there is not None:
            conditions.append(or_(column.is_(None), column <= there))
    if device_capabilities.lacking_precisions:
        conditions.append(Submission.precision.not_in(device_capabilities.lacking_precisions))
    return and_(*conditions)


def eligible_workers(session: Session, stage: Stage, submission: Any) -> list[Worker]:
    """Return the workers that take submissions now and could take ``submission`` through its ``stage``."""
    workers = list_workers(session)
    able = _serving(workers, "build", submission.device) if stage == "build" else _able(workers, stage, submission)
    return [worker for worker in able if worker.state.takes]


def capabilities_of(session: Session, device: str) -> set[DeviceCapabilities]:
    """Return the devices of the workers that take evaluations on a kind of device."""
    serving = _serving(list_workers(session), "evaluate", device)
    return {DeviceCapabilities.of(worker.capabilities) for worker in serving if worker.state.takes}


def waiting_for(stage: Stage, submission: Submission, workers: Sequence[Worker]) -> str | None:
    """Return which worker a queued submission lacks, and why; ``None`` where there is a worker that could take it.

    A submission that is yet to be compiled needs two workers: a builder, and one for its device.
    """
    missing = []
    if stage == "build" and not any(worker.state.takes for worker in _serving(workers, "build", submission.device)):
        missing.append("a worker that compiles")
    able = _able(workers, "evaluate", submission)
    if not any(worker.state.takes for worker in able):
        asked = Requirements.of(submission).words
        missing.append(f"a worker for device {submission.device}{f' {asked}' if asked else ''}")
    if not missing:
        return None
    idle = [worker for worker in able if not worker.state.takes]
    if idle:
        why = "; ".join(f"{worker.id} takes nothing ({worker.reason or worker.state})" for worker in idle)
    elif serving := _serving(workers, "evaluate", submission.device):
        names = sorted({str(worker.capabilities.get("device_name") or worker.device) for worker in serving})
        why = f"none that is running can take it in {submission.precision} (running: {', '.join(names)})"
    else:
        why = "none is running"
    return f"waiting for {' and '.join(missing)}: {why}"


def _serving(workers: Sequence[Worker], stage: Stage, device: str) -> list[Worker]:
    queue = queue_name(stage, device)
    return [worker for worker in workers if worker.alive and queue in worker.queues]


def _able(workers: Sequence[Worker], stage: Stage, submission: Any) -> list[Worker]:
    """Return the living workers whose devices meet the requirements of ``submission``."""
    asked = Requirements.of(submission)
    return [
        worker
        for worker in _serving(workers, stage, submission.device)
        if DeviceCapabilities.of(worker.capabilities).runs(asked, submission.precision)
    ]
