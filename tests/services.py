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


@contextlib.contextmanager
def postgresql_server() -> Iterator[str]:
    """A PostgreSQL server; yields its URL for SQLAlchemy, without a database's name."""
    initdb, postgres = _postgresql_binary("initdb"), _postgresql_binary("postgres")
    user = _unprivileged_user("postgres")
    with _folder(user) as folder, (folder / "log").open("w") as log:
        data = folder / "data"
        subprocess.run(
            [initdb, "-D", data, "-U", "kerneljudge", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"],
            check=True,
            stdout=log,
            stderr=log,
            cwd=folder,
            user=user,
        )
        port = free_port()
        # Nothing here has to survive the machine: without fsync the tests are several times as fast.
        options = [f"port={port}", "listen_addresses=127.0.0.1", "unix_socket_directories=", "fsync=off"]
        argv: list[str | Path] = [postgres, "-D", data, *(part for option in options for part in ("-c", option))]
        server = subprocess.Popen(argv, stdout=log, stderr=log, cwd=folder, user=user, preexec_fn=_die_with_parent)  # noqa: PLW1509 - before any thread
        try:
            conninfo = f"host=127.0.0.1 port={port} user=kerneljudge dbname=postgres"
            _wait(server, folder / "log", lambda: psycopg.connect(conninfo, connect_timeout=2).close(), psycopg.Error)
            yield f"postgresql+psycopg://kerneljudge@127.0.0.1:{port}"
        finally:
            # SIGQUIT is PostgreSQL's immediate shutdown: nothing is written that nobody will read.
            _stop(server, signal.SIGQUIT)


@contextlib.contextmanager
def redis_server(port: int | None = None) -> Iterator[str]:
    """A Redis server that keeps nothing on disk; yields its URL."""
    binary = shutil.which("redis-server")
    if binary is None:
        raise ServiceMissing("redis-server is not installed (Debian: apt-get install redis-server)")
    with _folder(None) as folder, (folder / "log").open("w") as log:
        port = port or free_port()
        argv = [binary, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
        server = subprocess.Popen(argv, stdout=log, stderr=log, cwd=folder, preexec_fn=_die_with_parent)  # noqa: PLW1509 - before any thread
        try:
            with redis.Redis(port=port) as client:
                _wait(server, folder / "log", client.ping, redis.RedisError)
            yield f"redis://127.0.0.1:{port}/0"
        finally:
            _stop(server, signal.SIGTERM)


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
