"""``python -m worker --queue evaluate.cpu --device cpu``: one worker process; ``--device all``: one for each device."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
from types import FrameType

from evaluator import logs
from evaluator.errors import EvaluatorError
from runtime import tracing
from runtime.settings import Settings, misspelt
from storage.database import DatabaseUnusable, prepare_database
from storage.queue.celery_app import QUEUES
from worker.per_device import ALL_DEVICES, devices_for, run_per_device
from worker.process import Role, run_worker

_USAGE_STATUS = 2
_FAULT_STATUS = 3


def main(argv: list[str] | None = None) -> int:
    """Parse the command line and work; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m worker", description="Build or evaluate submissions.")
    parser.add_argument("--queue", required=True, choices=QUEUES, help="what to take up")
    parser.add_argument("--device", help="cpu, cuda:0, cuda:1 …: the device to evaluate on; all: one process each")
    parser.add_argument(
        "--require-sandbox", action="store_true", help="do not start where a layer of the sandbox is missing"
    )
    options = parser.parse_args(argv)
    try:
        all_devices = options.device == ALL_DEVICES
        role = Role(queue=options.queue, device=None if all_devices else options.device)
        if all_devices and role.kind == "build":
            raise ValueError("a builder has no device")
        settings = Settings.load()
        if options.require_sandbox:
            settings = settings.model_copy(update={"require_sandbox": True})
        logs.configure(settings.log_format, settings.log_level)
        for line in misspelt(os.environ):
            logging.getLogger("worker").warning("%s", line)
        tracing.configure("kerneljudge-worker")
    except ValueError as error:
        print(f"python -m worker: {error}", file=sys.stderr)
        return _USAGE_STATUS
    if all_devices:
        return _crew(settings, role.queue)
    # Until Celery has its handlers, SIGTERM during the start also ends the process in an orderly way.
    signal.signal(signal.SIGTERM, _exit)
    try:
        prepare_database(settings)
        return run_worker(settings, role)
    except (DatabaseUnusable, EvaluatorError) as error:
        print(f"python -m worker: {error}", file=sys.stderr)
        return _FAULT_STATUS
    except KeyboardInterrupt:
        return 0


def _crew(settings: Settings, queue: str) -> int:
    try:
        devices, drain_s = devices_for(settings, queue), settings.drain_s
        return run_per_device(devices, queue, require_sandbox=settings.require_sandbox, drain_s=drain_s)
    except EvaluatorError as error:
        print(f"python -m worker: {error}", file=sys.stderr)
        return _FAULT_STATUS


def _exit(_signal: int, _frame: FrameType | None) -> None:
    sys.exit(0)


if __name__ == "__main__":
    sys.exit(main())
