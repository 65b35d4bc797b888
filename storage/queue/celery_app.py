"""The hand-over to the queue: a Celery application that producers and workers share.

A message is a task's name alone, so a producer never imports the worker. Messages are sent after the commit, and may
be lost or doubled. Workers therefore claim in the database, and send another one where rows wait and the queue has no
message (``storage.grading.leases``).
"""

from __future__ import annotations

import logging
import math
import socket
import threading
import time
from typing import Any, Final
from urllib.parse import urlsplit

from celery import Celery
from kombu.transport import TRANSPORT_ALIASES
from sqlalchemy import event
from sqlalchemy.orm import Session, sessionmaker

from evaluator.config import DEVICE_KINDS, Limits
from kerneljudge.terms.findings import Tool
from runtime.settings import Settings
from storage.models import Stage
from storage.queue.wakeups import WakeUp, take_requested_wakeups

__all__ = [
    "BUILD_TASK",
    "DIAGNOSE_TASK",
    "DIAGNOSIS_QUEUES",
    "EVALUATE_TASK",
    "QUEUES",
    "broker_fault",
    "diagnosis_queue",
    "make_celery",
    "notify",
    "notify_after_commit",
    "queue_name",
]

BUILD_TASK: Final = "kerneljudge.build"
EVALUATE_TASK: Final = "kerneljudge.evaluate"
DIAGNOSE_TASK: Final = "kerneljudge.diagnose"
QUEUES: Final = ("build", *(f"evaluate.{kind}" for kind in DEVICE_KINDS))
"""The queues that a worker can be started for."""

_CONNECT_TIMEOUT_S: Final = 2.0
_ANSWER_TIMEOUT_S: Final = 4.0
_TRIAL_TIMEOUT_S: Final = 1.0
_SILENT_S: Final = 5.0
"""The seconds without wake-ups after one that could not be sent: a submission must not wait for a broker that hangs."""
_NOTIFYING_AT_ONCE: Final = 4
_PLACE_S: Final = 0.2
"""The longest wait while others send: a message takes a millisecond where the broker answers."""

TRANSPORT_ALIASES["folder"] = "storage.queue.folder_transport:FolderTransport"
TRANSPORT_ALIASES["redis"] = TRANSPORT_ALIASES["rediss"] = "storage.queue.redis_transport:RedisTransport"

_log = logging.getLogger(__name__)


def make_celery(settings: Settings, *, patient: bool = True) -> Celery:
    """Return the application for ``settings.broker_url``. A worker registers its tasks on it.

    ``patient``: a caller waits for a broker that has stopped answering until it answers again, or until the connection
    is found dead after a minute. That is for taking messages, because an unacknowledged message is delivered again. A
    sender of wake-ups is not patient, and gives up after some seconds (Redis; a ``folder`` answers at once).
    """
    app = Celery("kerneljudge", set_as_current=False)
    broker_url, transport_options = _broker(settings.broker_url, patient=patient)
    app.conf.update(
        broker_url=broker_url,
        broker_transport_options=transport_options,
        broker_connection_timeout=_CONNECT_TIMEOUT_S,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        task_serializer="json",
        accept_content=["json"],
        task_ignore_result=True,
        task_acks_late=True,
        task_publish_retry=False,
        task_send_sent_event=False,
        worker_prefetch_multiplier=1,
        worker_enable_remote_control=False,
        worker_send_task_events=False,
        worker_hijack_root_logger=False,
        worker_redirect_stdouts=False,
        enable_utc=True,
    )
    return app


def queue_name(stage: Stage, device: str) -> str:
    """Return the queue on which ``stage`` waits for a worker; any machine builds for any kind of device."""
    return "build" if stage == "build" else f"evaluate.{device}"


def diagnosis_queue(tool: Tool) -> str:
    """Return the queue on which a diagnosis waits for a worker that has a CUDA device and the tool's program."""
    return f"diagnose.{tool.program}"


DIAGNOSIS_QUEUES: Final = tuple(sorted({diagnosis_queue(tool) for tool in Tool}))
"""The queues that an evaluating worker takes from as well, where it has the program."""


def notify(app: Celery, wakeup: WakeUp) -> bool:
    """Send the messages of ``wakeup``; ``False`` (and a line in the log) if the broker cannot be reached."""
    try:
        with app.producer_pool.acquire(block=True) as producer:
            if wakeup.if_empty and producer.channel.queue_declare(wakeup.queue).message_count:
                return True
            for _ in range(wakeup.count):
                app.send_task(_task(wakeup.queue), queue=wakeup.queue, producer=producer, retry=False)
    except Exception as error:  # noqa: BLE001 - whatever the broker does, the rows are safe and get another wake-up
        _log.warning("could not wake %s (another wake-up follows later): %s", wakeup.queue, error)
        return False
    return True


def broker_fault(app: Celery) -> str | None:
    """Return why the broker cannot be reached, within about two seconds; ``None`` where it can."""
    timeouts = {"socket_connect_timeout": _TRIAL_TIMEOUT_S, "socket_timeout": _TRIAL_TIMEOUT_S}
    try:
        with app.connection_for_write(transport_options=timeouts) as connection:
            connection.ensure_connection(max_retries=1, interval_start=0, timeout=_TRIAL_TIMEOUT_S)
            connection.default_channel.queue_declare(QUEUES[0])
    except Exception as error:  # noqa: BLE001 - every broker has errors of its own
        return f"{type(error).__name__}: {error}"
    return None


def notify_after_commit(sessions: sessionmaker[Session], app: Celery) -> None:
    """Make each commit of a session from ``sessions`` send the wake-ups that were requested in the session.

    After a failure to send one, those of the next seconds are left to the workers, which send wake-ups for every queue
    where submissions wait.
    """
    notifier = _Notifier(app)

    def committed(session: Session) -> None:
        for wakeup in take_requested_wakeups(session):
            notifier.notify(wakeup)

    def rolled_back(session: Session) -> None:
        take_requested_wakeups(session)

    event.listen(sessions, "after_commit", committed)
    event.listen(sessions, "after_rollback", rolled_back)


class _Notifier:
    """A sender of wake-ups. After a failure of the broker, it sends only one at a time, every few seconds."""

    def __init__(self, app: Celery) -> None:
        self._app = app
        self._lock = threading.Lock()
        self._places = threading.BoundedSemaphore(_NOTIFYING_AT_ONCE)
        self._failing = False
        self._silent_until = -math.inf

    def notify(self, wakeup: WakeUp) -> None:
        """Send it now, or leave it to the workers."""
        with self._lock:
            if time.monotonic() < self._silent_until:
                return
            if self._failing:
                self._silent_until = time.monotonic() + _ANSWER_TIMEOUT_S + _SILENT_S
        if not self._places.acquire(timeout=_PLACE_S):
            return
        try:
            notified = notify(self._app, wakeup)
        finally:
            self._places.release()
        with self._lock:
            self._failing = not notified
            self._silent_until = -math.inf if notified else time.monotonic() + _SILENT_S


def _task(queue: str) -> str:
    """Return the task of the messages of ``queue``."""
    if queue in DIAGNOSIS_QUEUES:
        return DIAGNOSE_TASK
    return BUILD_TASK if queue == "build" else EVALUATE_TASK


def _broker(url: str, *, patient: bool) -> tuple[str, dict[str, Any]]:
    # A broker that is down must cost a producer little: one attempt to connect, then an error.
    options: dict[str, Any] = {"max_retries": 1, "interval_start": 0, "interval_step": 0.1, "interval_max": 0.1}
    parts = urlsplit(url)
    if parts.scheme == "folder":
        return "folder://localhost", {**options, "folder": parts.path}
    if parts.scheme in ("redis", "rediss"):
        limits = Limits()
        return url, {
            **options,
            # Longer than the longest evaluation: otherwise Redis would deliver the message of a task in progress again,
            # and the work would be done twice.
            "visibility_timeout": 4 * (limits.build_s + limits.total_s),
            "socket_connect_timeout": _CONNECT_TIMEOUT_S,
            "socket_timeout": None if patient else _ANSWER_TIMEOUT_S,
            # Without keepalive, a client would wait for ever for a broker whose machine was switched off.
            "socket_keepalive": True,
            "socket_keepalive_options": {
                socket.TCP_KEEPIDLE: 30,
                socket.TCP_KEEPINTVL: 10,
                socket.TCP_KEEPCNT: 3,
                socket.TCP_USER_TIMEOUT: 60_000,
            },
        }
    return url, options
