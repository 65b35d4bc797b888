"""Private PostgreSQL and Redis servers for tests, started from the installed binaries on free ports.

Each lives in a temporary folder of its own and is stopped by its process id. A binary that is not
installed is an error that says what to install: these tests are never skipped.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import redis

_START_TIMEOUT_S = 60.0
_PR_SET_PDEATHSIG = 1


class ServiceMissing(RuntimeError):
    """A server that the tests need is not installed."""


def free_port() -> int:
    """A TCP port of this machine that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class PostgresqlServer:
    """A PostgreSQL server in a folder of its own, which can be stopped and started again with its data and port."""

    def __init__(self, folder: Path, user: str | None, *, durable: bool) -> None:
        self._folder, self._user = folder, user
        self._binary = _postgresql_binary("postgres")
        self._port = free_port()
        # Where nothing has to survive the machine: without fsync the tests are several times as fast.
        self._options = [] if durable else ["fsync=off"]
        self.url = f"postgresql+psycopg://kerneljudge@127.0.0.1:{self._port}"
        self.conninfo = f"host=127.0.0.1 port={self._port} user=kerneljudge dbname=postgres"
        with (folder / "log").open("w") as log:
            subprocess.run(
                [
                    _postgresql_binary("initdb"),
                    *("-D", folder / "data", "-U", "kerneljudge", "-A", "trust", "-E", "UTF8", "--locale=C"),
                    "--no-sync",
                ],
                check=True,
                stdout=log,
                stderr=log,
                cwd=folder,
                user=user,
            )

    def start(self) -> None:
        """Start it, and wait until it takes connections."""
        options = [f"port={self._port}", "listen_addresses=127.0.0.1", "unix_socket_directories=", *self._options]
        argv: list[str | Path] = [self._binary, "-D", self._folder / "data"]
        argv += [part for option in options for part in ("-c", option)]
        with (self._folder / "log").open("a") as log:
            self._process = subprocess.Popen(
                argv,
                stdout=log,
                stderr=log,
                cwd=self._folder,
                user=self._user,
                preexec_fn=_die_with_parent,  # noqa: PLW1509 - before any thread of ours that holds a lock
            )
        probe = lambda: psycopg.connect(self.conninfo, connect_timeout=2).close()  # noqa: E731 - one expression
        _wait(self._process, self._folder / "log", probe, psycopg.Error)

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Meanwhile it takes connections, and neither it nor any of its sessions answers."""
        server = self._process.pid
        pids = [server, *map(int, Path(f"/proc/{server}/task/{server}/children").read_text().split())]
        self._signal(pids, signal.SIGSTOP)
        try:
            yield
        finally:
            self._signal(pids, signal.SIGCONT)

    def _signal(self, pids: list[int], number: signal.Signals) -> None:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):  # a session that has just ended
                os.kill(pid, number)

    def stop(self, how: signal.Signals) -> None:
        """SIGINT is PostgreSQL's fast shutdown, SIGQUIT the immediate one, after which it recovers from its log."""
        _stop(self._process, how)


class RedisServer:
    """A Redis server that keeps nothing on disk: stopped and started again, it has forgotten everything."""

    def __init__(self, folder: Path, port: int | None = None) -> None:
        binary = shutil.which("redis-server")
        if binary is None:
            raise ServiceMissing("redis-server is not installed (Debian: apt-get install redis-server)")
        self._folder = folder
        self._port = port or free_port()
        self._argv = [binary, "--port", str(self._port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
        self.url = f"redis://127.0.0.1:{self._port}/0"

    def start(self) -> None:
        """Start it, and wait until it answers."""
        with (self._folder / "log").open("a") as log:
            self._process = subprocess.Popen(
                self._argv,
                stdout=log,
                stderr=log,
                cwd=self._folder,
                preexec_fn=_die_with_parent,  # noqa: PLW1509 - before any thread of ours that holds a lock
            )
        with redis.Redis(port=self._port) as client:
            _wait(self._process, self._folder / "log", client.ping, redis.RedisError)

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Meanwhile it takes connections and answers nothing."""
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def stop(self, how: signal.Signals) -> None:
        """End it by ``how``."""
        _stop(self._process, how)


@contextlib.contextmanager
def running_postgresql(*, durable: bool = False) -> Iterator[PostgresqlServer]:
    """A PostgreSQL server. ``durable``: what it has committed survives the machine."""
    user = _unprivileged_user("postgres")
    with _folder(user) as folder:
        server = PostgresqlServer(folder, user, durable=durable)
        server.start()
        try:
            yield server
        finally:
            # Nothing is written that nobody will read.
            server.stop(signal.SIGQUIT)


@contextlib.contextmanager
def running_redis(port: int | None = None) -> Iterator[RedisServer]:
    """A Redis server."""
    with _folder(None) as folder:
        server = RedisServer(folder, port)
        server.start()
        try:
            yield server
        finally:
            server.stop(signal.SIGTERM)


@contextlib.contextmanager
def postgresql_server() -> Iterator[str]:
    """A PostgreSQL server; yields its URL for SQLAlchemy, without a database's name."""
    with running_postgresql() as server:
        yield server.url


@contextlib.contextmanager
def redis_server(port: int | None = None) -> Iterator[str]:
    """A Redis server that keeps nothing on disk; yields its URL."""
    with running_redis(port) as server:
        yield server.url


def _postgresql_binary(name: str) -> str:
    installed = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), key=lambda path: int(path.parts[-3]))
    found = shutil.which(name) or (str(installed[-1]) if installed else None)
    if found is None:
        raise ServiceMissing(f"PostgreSQL's {name} is not installed (Debian: apt-get install postgresql)")
    return found


def _unprivileged_user(name: str) -> str | None:
    if os.geteuid() != 0:
        return None
    try:
        pwd.getpwnam(name)
    except KeyError as error:
        raise ServiceMissing(f"PostgreSQL does not run as root, and there is no user {name}") from error
    return name


@contextlib.contextmanager
def _folder(user: str | None) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="kerneljudge-tests-"))
    if user is not None:
        shutil.chown(folder, user)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def _die_with_parent() -> None:
    # Tests that are killed hard must not leave servers behind.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _wait(server: subprocess.Popen[Any], log: Path, probe: Callable[[], object], refused: type[Exception]) -> None:
    deadline = time.monotonic() + _START_TIMEOUT_S
    while True:
        try:
            probe()
        except refused:
            if server.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{server.args!r} did not start:\n{log.read_text()}") from None
            time.sleep(0.05)
        else:
            return


def _stop(server: subprocess.Popen[Any], how: signal.Signals) -> None:
    server.send_signal(how)
    try:
        server.wait(timeout=20)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()
