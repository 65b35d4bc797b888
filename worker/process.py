"""One worker process, from start to end."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from celery import Celery, signals
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session, sessionmaker

from evaluator.config import DEVICE_KINDS
from evaluator.devices.discovery import device_id
from evaluator.devices.health import device_health
from evaluator.engine import Engine, SandboxLayer
from evaluator.selftest import self_test
from runtime.settings import Settings
from storage.database import create_engine_for, session_factory
from storage.models import Stage, WorkerState
from storage.queue import workers
from storage.queue.celery_app import (
    BUILD_TASK,
    DIAGNOSE_TASK,
    EVALUATE_TASK,
    QUEUES,
    diagnosis_queue,
    make_celery,
    notify_after_commit,
)
from storage.queue.eligibility import DeviceCapabilities
from storage.queue.workers import Condition
from worker.claim_handler import ClaimHandler
from worker.device_gate import DeviceGate
from worker.diagnosing import Diagnoser
from worker.grading import Grader
from worker.grading_engine import GradingEngine
from worker.reconciler import Reconciler
from worker.scratch import own_scratch
from worker.stopping import Stop
from worker.webhook_sender import WebhookSender

__all__ = ["Role", "run_worker"]

_STOPPING_PATIENCE_S: Final = 10.0
_DEFAULT_DEVICE: Final = {"cpu": "cpu", "cuda": "cuda:0"}

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Role:
    """The role of a worker: ``build``, or evaluate on one device. Raises ``ValueError`` on a contradiction."""

    queue: str
    device: str | None = None

    def __post_init__(self) -> None:
        if self.queue not in QUEUES:
            raise ValueError(f"queue must be one of {', '.join(QUEUES)}, not {self.queue!r}")
        if self.queue == "build":
            if self.device is not None:
                raise ValueError("a builder has no device")
            return
        kind = self.queue.removeprefix("evaluate.")
        device = self.device or _DEFAULT_DEVICE[kind]
        if device.partition(":")[0] != kind:
            raise ValueError(f"device {device} cannot take from queue {self.queue}")
        object.__setattr__(self, "device", device)

    @property
    def kind(self) -> Stage:
        return "build" if self.device is None else "evaluate"

    @property
    def takes(self) -> tuple[tuple[Stage, str], ...]:
        """The stages and kinds of device that the worker takes; a builder builds for any device."""
        if self.device is None:
            return tuple(("build", kind) for kind in DEVICE_KINDS)
        return (("evaluate", self.device.partition(":")[0]),)


def run_worker(
    settings: Settings, role: Role, make_engine: Callable[[Settings, Role, Path], GradingEngine] | None = None
) -> int:
    """Work until SIGTERM or SIGINT; return the exit status.

    Work that is not over within ``settings.drain_s`` then goes back to the queue. A second signal ends the process at
    once. Raises the errors of an engine that cannot start: ``DeviceUnavailable``, ``ToolchainMissing``,
    ``SandboxIncomplete``, ``InfrastructureFault``.
    """
    database = create_engine_for(settings)
    sessions, readers = session_factory(database), session_factory(database, read_only=True)
    app = make_celery(settings)
    # Not patient: a broker that hangs must not delay heartbeats or the renewal of claims.
    notify_after_commit(sessions, make_celery(settings, patient=False))
    name = workers.worker_name(socket.gethostname(), role.device or role.queue)
    stop = Stop(settings.drain_s)
    with ExitStack() as ending:
        ending.callback(database.dispose)
        scratch = ending.enter_context(own_scratch(settings.scratch_dir))
        engine = (make_engine or _engine)(settings, role, scratch)
        ending.callback(engine.close)
        ending.callback(stop.now)
        engine.start()
        _log_sandbox(engine.layers)
        # Read once, because the engine has no environment while it restarts.
        capabilities = {
            **engine.environment,
            "sandbox": _sandbox(engine.layers),
            **({} if role.device is None else {"device_id": device_id(role.device)}),
        }
        device_capabilities = None if role.device is None else DeviceCapabilities.of(capabilities)
        gate = None if role.device is None else _gate(settings, role.device, engine, stop.stopping)
        handler = ClaimHandler(
            settings,
            sessions,
            readers,
            engine,
            worker=name,
            device=role.device,
            stopping=stop.stopping,
            requeueing=stop.requeueing,
            gate=gate,
        )
        _add_tasks(app, Grader(handler, device_capabilities), Diagnoser(handler))
        queues = [role.queue, *sorted({diagnosis_queue(tool) for tool in engine.tools})]

        def condition() -> Condition:
            if gate is not None:
                return gate.condition
            return Condition(WorkerState.STOPPING if stop.stopping.is_set() else WorkerState.READY)

        def register(session: Session) -> None:
            workers.register(
                session,
                name,
                kind=role.kind,
                queues=queues,
                device=role.device,
                capabilities=capabilities,
                condition=condition(),
            )

        with (
            _registered(sessions, name, queues, register),
            gate or nullcontext(),
            Reconciler(
                settings,
                sessions,
                worker=name,
                queues=role.takes,
                tools=engine.tools,
                current_submission=lambda: handler.current_submission,
                busy_s=lambda: handler.busy_s,
                register=register,
                device_capabilities=device_capabilities,
                condition=condition,
            ),
            WebhookSender(sessions, readers, interval_s=settings.reconcile_s, networks=settings.webhook_reach)
            if settings.send_webhooks
            else nullcontext(),
        ):
            return _consume(app, settings, role, queues, name, stop)


def _gate(settings: Settings, device: str, engine: GradingEngine, stopping: threading.Event) -> DeviceGate:
    test = None
    if settings.self_test == "on":
        test = partial(self_test, engine, device, cancelled=stopping.is_set)

    def own_processes() -> Collection[int]:
        return engine.process_ids.values()

    return DeviceGate(
        device_health(device, foreign_share=settings.foreign_memory_share),
        test,
        stopping=stopping,
        own_processes=own_processes,
        interval_s=settings.reconcile_s,
    )


def _engine(settings: Settings, role: Role, scratch: Path) -> GradingEngine:
    return Engine(
        device=role.device,
        cache_dir=settings.cache_dir,
        cache_bytes=int(settings.build_cache_gib * 2**30),
        scratch_dir=scratch,
        build_slots=settings.build_slots,
        require_sandbox=settings.require_sandbox,
        artifact_store=settings.artifact_store_address,
    )


def _sandbox(layers: Sequence[SandboxLayer]) -> list[dict[str, Any]]:
    """Return the layers of this machine's sandbox, as the worker registers them."""
    return [{"layer": layer.name, "there": layer.there, "optional": layer.optional} for layer in layers]


def _log_sandbox(layers: Sequence[SandboxLayer]) -> None:
    """Log each missing layer of the sandbox with its meaning, in one line each."""
    for layer in layers:
        if not layer.there:
            optional = " (optional)" if layer.optional else ""
            _log.warning("the sandbox lacks the layer %s%s: %s", layer.name, optional, layer.meaning)
    if all(layer.there or layer.optional for layer in layers):
        _log.info("the sandbox is complete")


def _add_tasks(app: Celery, grader: Grader, diagnoser: Diagnoser) -> None:
    app.task(grader.build, name=BUILD_TASK)
    app.task(grader.evaluate, name=EVALUATE_TASK)
    app.task(diagnoser.diagnose, name=DIAGNOSE_TASK)


@contextmanager
def _registered(
    sessions: sessionmaker[Session], name: str, queues: Sequence[str], register: Callable[[Session], None]
) -> Iterator[None]:
    with sessions.begin() as session:
        register(session)
    _log.info("worker %s takes from %s", name, ", ".join(queues))
    try:
        yield
    finally:
        _strike_off(sessions, name)


def _strike_off(sessions: sessionmaker[Session], name: str) -> None:
    """Strike this worker off. A database that stays away is no fault of its work; others strike it off in an hour."""
    deadline = time.monotonic() + _STOPPING_PATIENCE_S
    while True:
        try:
            with sessions.begin() as session:
                workers.unregister(session, name)
        except DBAPIError:
            if time.monotonic() > deadline:
                _log.warning("worker %s could not be struck off, and stays listed for an hour", name, exc_info=True)
                return
            time.sleep(0.5)
        else:
            return


def _consume(app: Celery, settings: Settings, role: Role, queues: Sequence[str], name: str, stop: Stop) -> int:
    def shutting_down(**_: Any) -> None:
        # Celery would wait for the task in progress; this makes the task give its submission back.
        stop.soon()

    def keep_logging(**_: Any) -> None:
        """Do nothing: a connected receiver keeps Celery from configuring the logging."""

    signals.worker_shutting_down.connect(shutting_down, weak=False)
    signals.setup_logging.connect(keep_logging, weak=False)
    try:
        # Builds wait for compilers, so threads are enough; an evaluation has the process and the device alone.
        pool, slots = ("threads", settings.build_slots) if role.device is None else ("solo", 1)
        consumer = app.Worker(
            queues=list(queues),
            pool=pool,
            concurrency=slots,
            hostname=f"{name}@kerneljudge",
            without_gossip=True,
            without_mingle=True,
            without_heartbeat=True,
            quiet=True,
        )
        consumer.start()
        return int(consumer.exitcode or 0)
    finally:
        signals.worker_shutting_down.disconnect(shutting_down)
        signals.setup_logging.disconnect(keep_logging)
