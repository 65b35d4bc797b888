"""Starting and stopping a whole service on this machine."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import httpx

from evaluator.interpreter import python_command, python_environment
from kerneljudge.client import Client

__all__ = ["DemoFailed", "running_service"]

_USUAL_PORT: Final = 8000
_READY_S: Final = 180.0
_STOPPED_S: Final = 60.0
_POLL_S: Final = 0.2


class DemoFailed(Exception):
    """The service did not do what the demonstration promises."""


@contextlib.contextmanager
def running_service(
    folder: Path, *, devices: str, measured: bool = False
) -> Iterator[tuple[str, subprocess.Popen[Any]]]:
    """Run ``kerneljudge serve`` on a free port, with a data folder of its own. Yield its URL and its process.

    It is stopped at the end. ``devices`` has the form of ``kerneljudge serve --devices``. With ``measured``, the
    service is warm: every worker has tested itself, and only submissions that are handed in are evaluated.

    Raises ``DemoFailed`` where it does not start, or does not stop cleanly.
    """
    port = _free_port()
    url = f"http://127.0.0.1:{port}"
    command = python_command("-m", "kerneljudge", "serve", "--devices", devices)
    options = ["--port", str(port), "--data-dir", str(folder / "data")]
    print(f"$ kerneljudge serve --devices {devices} {' '.join(options)}", flush=True)
    environment = python_environment(os.environ) | ({"KERNELJUDGE_VERIFY_RECORDS": "off"} if measured else {})
    process = subprocess.Popen([*command, *options], stdin=subprocess.DEVNULL, env=environment)
    try:
        _await("answers", process, lambda: _answers(url))
        if measured:
            with Client(url) as client:
                _await("has its workers ready", process, lambda: _is_warm(client, devices))
        yield url, process
    finally:
        _stop(process)


def _free_port() -> int:
    for port in (_USUAL_PORT, 0):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            free: int = probe.getsockname()[1]
            return free
    raise DemoFailed("this machine has no free port")


def _await(what: str, process: subprocess.Popen[Any], there: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _READY_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise DemoFailed(f"the service ended with exit status {process.returncode} while starting")
        with contextlib.suppress(httpx.TransportError):
            if there():
                return
        time.sleep(_POLL_S)
    raise DemoFailed(f"there is no service that {what} after {_READY_S:.0f} s")


def _answers(url: str) -> bool:
    return httpx.get(f"{url}/readyz", timeout=2.0, trust_env=False).is_success


def _is_warm(client: Client, devices: str) -> bool:
    """Whether a builder is ready, and on each of ``devices`` an evaluator."""
    ready = {worker["device"] for worker in client.workers() if worker["state"] == "ready"}
    return ready >= {None, *devices.split(",")}


def _stop(process: subprocess.Popen[Any]) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
    try:
        status = process.wait(_STOPPED_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        raise DemoFailed(f"the service did not stop within {_STOPPED_S:.0f} s") from None
    if status != 0:
        raise DemoFailed(f"the service ended with exit status {status}")
