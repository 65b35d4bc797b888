"""One worker process for each device of a kind: ``python -m worker --queue evaluate.cuda --device all``."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from typing import Final

from evaluator.devices.discovery import available_devices
from evaluator.errors import DeviceUnavailable
from evaluator.interpreter import python_command, python_environment
from runtime.process_supervisor import STOPPING_S, ChildSpec, Supervisor
from runtime.settings import Settings

__all__ = ["ALL_DEVICES", "devices_for", "run_per_device"]

ALL_DEVICES: Final = "all"
_POLL_S: Final = 0.2

_log = logging.getLogger(__name__)


def devices_for(settings: Settings, queue: str) -> list[str]:
    """Return the devices of ``settings.devices``, or of this machine, for ``queue``. Raises ``DeviceUnavailable``."""
    kind = queue.removeprefix("evaluate.")
    named = available_devices() if settings.devices is None else settings.devices
    devices = [device for device in named if device.partition(":")[0] == kind]
    if not devices:
        raise DeviceUnavailable(f"no device for queue {queue}; there is {', '.join(named)}")
    return devices


def run_per_device(devices: Sequence[str], queue: str, *, require_sandbox: bool, drain_s: float) -> int:
    """Keep a worker running on each of ``devices`` until SIGTERM or SIGINT; return the exit status.

    A worker that ends is started again, without effect on the others. ``drain_s``: the seconds that each gets to finish
    its work.
    """
    command = python_command("-m", "runtime.parent_death", "worker", "--queue", queue)
    environment = python_environment(os.environ)
    options = ["--require-sandbox"] if require_sandbox else []
    specs = [ChildSpec(f"worker {device}", [*command, "--device", device, *options], None) for device in devices]
    grace_s = STOPPING_S + drain_s
    with _told_to_stop() as stopping, Supervisor(specs, environment, _log.warning, grace_s=grace_s) as supervisor:
        _log.info("one worker each for %s", ", ".join(devices))
        while not stopping.wait(_POLL_S):
            supervisor.check()
    return 0


@contextlib.contextmanager
def _told_to_stop() -> Iterator[threading.Event]:
    """Yield an event that SIGTERM and SIGINT set as long as the block lasts."""
    told = threading.Event()
    previous = {number: signal.signal(number, lambda *_: told.set()) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield told
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
