"""``kerneljudge serve``: the API and its workers on this machine, started and supervised by one command."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import httpx

from evaluator.devices.discovery import available_devices
from evaluator.errors import EvaluatorError
from evaluator.interpreter import python_command, python_environment
from runtime.process_supervisor import STOPPING_S, ChildSpec, Supervisor

if TYPE_CHECKING:
    from runtime.settings import Settings

__all__ = ["EXIT_FAULT", "EXIT_OK", "EXIT_USAGE", "serve"]

EXIT_OK: Final = 0
EXIT_USAGE: Final = 2
EXIT_FAULT: Final = 3

_READY_TIMEOUT_S: Final = 120.0
_DEATHS_BEFORE_READY: Final = 3
_POLL_S: Final = 0.1
_LOG_LINES: Final = 15
_LEFTOVERS_S: Final = 30.0


class _CannotServe(Exception):
    """Serving is not possible. The exception carries the exit status."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


def serve(
    *,
    host: str | None = None,
    port: int | None = None,
    data_dir: Path | None = None,
    problems_dir: Path | None = None,
    devices: Sequence[str] | None = None,
    build_slots: int | None = None,
    require_sandbox: bool | None = None,
    say: Callable[[str], None] | None = None,
) -> int:
    """Serve until Ctrl-C, SIGTERM or SIGHUP. Return the exit status.

    An option of ``None`` takes its value from the variable ``KERNELJUDGE_<OPTION>``, or else the default. ``say`` takes
    the lines for the user (default: standard error).

    Nothing is lost when any of the processes dies, this one included. The next start on the same ``data_dir`` continues
    with the unfinished work.
    """
    say = say or _say
    environment = _environment(host, port, data_dir, problems_dir, devices, build_slots, require_sandbox)
    try:
        settings = _settings(environment)
        with _stop_signals() as stopped, _held_folder(settings.data_dir, stopped) as lock:
            _serve(settings, environment, lock, stopped, say)
    except _CannotServe as error:
        say(f"kerneljudge serve: {error}")
        return error.status
    return EXIT_OK


def _serve(
    settings: Settings,
    environment: Mapping[str, str],
    lock: int,
    stopped: Callable[[], bool],
    say: Callable[[str], None],
) -> None:
    data, host, port = settings.data_dir, settings.host, settings.port
    devices = _devices(settings.devices)
    if settings.exposure is not None:
        raise _CannotServe(settings.exposure, EXIT_USAGE)
    _check_port(host, port)
    _check_sandbox(settings, stopped)
    _migrate(environment)
    logs = data / "logs"
    grace_s = STOPPING_S + settings.drain_s
    with Supervisor(_children(devices, logs), environment, say, keep=lock, grace_s=grace_s) as supervisor:
        url = f"http://{_reachable(host)}:{port}"
        if _wait_until_ready(url, supervisor, logs / "api.log", stopped):
            say(f"kerneljudge is ready at {url}")
            if settings.auth == "required":
                say("  keys     required; kerneljudge keys create makes one")
            say(f"  devices  {', '.join(devices)}")
            say(f"  data     {data}  (logs in {logs})")
            say("  stop     Ctrl-C")
        while not stopped():
            supervisor.check()
            time.sleep(_POLL_S)
        say("stopping; unfinished work continues with the next start")


def _environment(
    host: str | None,
    port: int | None,
    data_dir: Path | None,
    problems_dir: Path | None,
    devices: Sequence[str] | None,
    build_slots: int | None,
    require_sandbox: bool | None,
) -> dict[str, str]:
    defaults = {"HOST": "127.0.0.1", "PORT": "8000", "DATA_DIR": ".kerneljudge", "DEVICES": ""}
    given = {
        "HOST": host,
        "PORT": port,
        "DATA_DIR": data_dir,
        "PROBLEMS_DIR": problems_dir,
        "DEVICES": ",".join(devices) if devices else None,
        "BUILD_SLOTS": build_slots,
        "REQUIRE_SANDBOX": require_sandbox,
    }
    environment = {f"KERNELJUDGE_{name}": value for name, value in defaults.items()}
    environment |= os.environ
    environment |= {f"KERNELJUDGE_{name}": str(value) for name, value in given.items() if value is not None}
    environment["KERNELJUDGE_DATA_DIR"] = str(Path(environment["KERNELJUDGE_DATA_DIR"]).expanduser().absolute())
    # Without buffers, a child's log does not lag behind its work.
    return python_environment(environment) | {"PYTHONUNBUFFERED": "1"}


def _settings(environment: Mapping[str, str]) -> Settings:
    from runtime.settings import InvalidSettings, Settings  # noqa: PLC0415 - a client needs no server package

    try:
        return Settings.load(environment)
    except InvalidSettings as error:
        raise _CannotServe(str(error), EXIT_USAGE) from error


def _devices(named: Sequence[str] | None) -> list[str]:
    present = available_devices()
    wanted = named or present
    missing = [name for name in wanted if name not in present]
    if missing:
        message = f"no device {', '.join(missing)} on this machine; it has {', '.join(present)}"
        raise _CannotServe(message, EXIT_USAGE)
    return list(dict.fromkeys(wanted))


def _children(devices: Sequence[str], logs: Path) -> list[ChildSpec]:
    run = python_command("-m", "runtime.parent_death")
    children = [
        ChildSpec("api", [*run, "api"], logs / "api.log"),
        ChildSpec("builder", [*run, "worker", "--queue", "build"], logs / "builder.log"),
    ]
    for device in devices:
        argv = [*run, "worker", "--queue", f"evaluate.{device.partition(':')[0]}", "--device", device]
        children.append(ChildSpec(f"worker {device}", argv, logs / f"worker-{device.replace(':', '-')}.log"))
    return children


def _check_port(host: str, port: int) -> None:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            # The server does the same: a port whose last connections are still being closed is free.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        message = f"cannot listen on {host} port {port} ({error.strerror}); choose another with --port"
        raise _CannotServe(message, EXIT_USAGE) from error


def _check_sandbox(settings: Settings, stopped: Callable[[], bool]) -> None:
    """Refuse to serve without a complete sandbox, if that is required.

    Otherwise every worker would refuse at each restart.
    """
    if not settings.require_sandbox:
        return
    from evaluator.engine import Engine  # noqa: PLC0415 - only where it is asked for

    try:
        with Engine(device=None, cache_dir=settings.cache_dir, require_sandbox=True):
            pass
    except EvaluatorError as error:
        if stopped():
            raise _CannotServe("stopped", EXIT_OK) from error
        raise _CannotServe(str(error), EXIT_FAULT) from error


def _migrate(environment: Mapping[str, str]) -> None:
    argv = python_command("-m", "storage.migrate")
    result = subprocess.run(argv, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if result.returncode != 0:
        raise _CannotServe(f"the database cannot be prepared:\n{_tail(result.stderr)}", EXIT_FAULT)


def _wait_until_ready(url: str, supervisor: Supervisor, log: Path, stopped: Callable[[], bool]) -> bool:
    """Wait until the API answers. Return ``False`` if serving was stopped before."""
    deadline = time.monotonic() + _READY_TIMEOUT_S
    with httpx.Client(timeout=2.0, trust_env=False) as client:
        while not stopped():
            supervisor.check()
            with contextlib.suppress(httpx.TransportError):
                if client.get(f"{url}/healthz").is_success:
                    return True
            hopeless = supervisor.last_status["api"] == EXIT_USAGE or supervisor.deaths["api"] >= _DEATHS_BEFORE_READY
            if hopeless or time.monotonic() > deadline:
                last = _tail(log.read_text(errors="replace"))
                raise _CannotServe(f"the API does not start; its log {log} ends with\n{last}", EXIT_FAULT)
            time.sleep(_POLL_S)
    return False


def _reachable(host: str) -> str:
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - read, not bound
    return f"[{host}]" if ":" in host else host


@contextlib.contextmanager
def _held_folder(data: Path, stopped: Callable[[], bool]) -> Iterator[int]:
    """Lock the data folder, and yield the lock's descriptor.

    The children keep the descriptor open. So the lock is free only when every process of an earlier start has ended.
    """
    try:
        data.mkdir(parents=True, exist_ok=True)
        lock = (data / "serve.lock").open("a+")
    except OSError as error:
        raise _CannotServe(f"cannot write to {data}: {error.strerror}", EXIT_USAGE) from error
    with lock:
        deadline = time.monotonic() + _LEFTOVERS_S
        while not _locked(lock.fileno()):
            lock.seek(0)
            if _alive(lock.read()) or time.monotonic() > deadline:
                message = f"another kerneljudge serve uses {data}; stop it, or choose another with --data-dir"
                raise _CannotServe(message, EXIT_USAGE)
            if stopped():
                raise _CannotServe("stopped", EXIT_OK)
            # The process that started them was killed. The processes that are left are about to end.
            time.sleep(_POLL_S)
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        yield lock.fileno()


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _alive(pid: str) -> bool:
    return pid.isdecimal() and Path(f"/proc/{pid}").exists()


@contextlib.contextmanager
def _stop_signals() -> Iterator[Callable[[], bool]]:
    """Turn the first signal to stop into a value. Further signals change nothing."""
    received: list[int] = []
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, lambda got, _frame: received.append(got)) for number in numbers}
    try:
        yield lambda: bool(received)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _tail(text: str) -> str:
    return "\n".join(text.strip().splitlines()[-_LOG_LINES:])


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
