"""The builder's process: ``python -m evaluator.builder FD``, as long as its supervisor lives.

Over the socket ``FD`` the supervisor sends ``configure`` once. Then it sends ``session`` with one end of a socket; the
other end goes to a runner. It sends ``report`` to learn the builds of that runner. Requests come from a process that
runs a candidate's code, and are validated as such.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import socket
import sys
import threading
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from evaluator.artifact_store import StoreAddress
from evaluator.builder.builder import Builder
from evaluator.builder.cache import ArtifactCache, BuildFailure
from evaluator.builder.request import BuildRequest, InvalidRequest
from evaluator.builder.store import open_store
from evaluator.errors import public_text
from evaluator.logs import report
from evaluator.protocol import messages
from evaluator.sandbox.confinement import Confinement

__all__ = ["main"]

_MAX_REQUEST_BYTES: Final = 8 * 2**20
_MAX_REQUESTS: Final = 64
_MAX_REASON: Final = 2000


class _Session:
    """The builds of one runner."""

    def __init__(self, number: int, builder: Builder, connection: socket.socket, timeout_s: float) -> None:
        self._number = number
        self._builder = builder
        self._timeout_s = timeout_s
        self._ended = threading.Event()
        self._connection = connection
        self._lock = threading.Lock()
        self._builds: list[dict[str, Any]] = []
        self._busy = False
        threading.Thread(target=self._serve, daemon=True).start()

    def report(self) -> dict[str, Any]:
        """Return every build so far, and whether one is under way."""
        with self._lock:
            return {"builds": list(self._builds), "busy": self._busy}

    def close(self) -> None:
        """End the session, and the compiler that it waits for."""
        self._ended.set()
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)

    def _serve(self) -> None:
        with contextlib.suppress(messages.ConnectionClosed, OSError):
            for _ in range(_MAX_REQUESTS):
                try:
                    message, descriptors = messages.receive(self._connection, _MAX_REQUEST_BYTES)
                except (ValueError, TypeError, RecursionError, messages.MessageTooLarge):
                    # A request that cannot be read cannot be answered in step either.
                    break
                for descriptor in descriptors:
                    os.close(descriptor)
                self._busy = True
                answer, library = self._answer(message)
                self._busy = False
                self._send(answer, library)
        self._connection.close()

    def _send(self, answer: dict[str, Any], library: list[int]) -> None:
        try:
            messages.send(self._connection, answer, library)
        except OSError as error:
            # The runner is there, and does not get its library: no fault of its candidate's.
            self._note_fault(str(answer.get("built_as", "")), error)
            raise
        finally:
            for descriptor in library:
                os.close(descriptor)

    def _answer(self, message: dict[str, Any]) -> tuple[dict[str, Any], list[int]]:
        """Return the runner's answer, and a descriptor of the finished library."""
        try:
            request = BuildRequest.parse(message)
        except InvalidRequest as error:
            reason = str(error)[:_MAX_REASON]
            self._note({"name": str(message.get("name"))[:_MAX_REASON], "error": reason, "log": "", "seconds": 0.0})
            return {"error": reason}, []
        try:
            result, cached = self._builder.build(request, self._timeout_s, self._ended)
            path = None if isinstance(result, BuildFailure) else result.path
            library = [] if path is None else [_sealed_copy(Path(path))]
        except Exception as error:  # noqa: BLE001 - our own fault: the runner is answered, the supervisor told
            self._note_fault(request.name, error)
            return {"error": "the builder failed"}, []
        # The candidate's own name for it, whatever name it was built under.
        noted = {**asdict(result), "name": request.name, "cached": cached}
        if isinstance(result, BuildFailure):
            self._note({**noted, "error": result.message})
            return {"error": result.message}, []
        self._note(noted)
        return {"built_as": result.name}, library

    def _note_fault(self, name: str, error: Exception) -> None:
        """Note a fault of ours, which makes the supervisor try again and is no verdict. Called while it is handled."""
        report(__name__, "a build failed through our fault", self._number)
        reason = public_text(error)[:_MAX_REASON]
        self._note({"name": name, "error": reason, "log": "", "seconds": 0.0, "infrastructure": True})

    def _note(self, build: dict[str, Any]) -> None:
        with self._lock:
            self._builds.append(build)


def _sealed_copy(library: Path) -> int:
    """Copy the library into memory that no process can change.

    A descriptor of the file itself would let a runner alter the cache, because both belong to the same user.
    """
    size = library.stat().st_size
    descriptor = os.memfd_create(library.name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        with library.open("rb") as source:
            sent = 0
            while sent < size:
                sent += os.sendfile(descriptor, source.fileno(), sent, size - sent)
        seals = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
        os.lseek(descriptor, 0, os.SEEK_SET)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def main(descriptor: int) -> None:
    """Serve until the supervisor closes its end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    supervisor = socket.socket(fileno=descriptor)
    sessions: dict[int, _Session] = {}
    message, _ = messages.receive(supervisor)
    address = message["artifact_store"]
    folder = ArtifactCache(Path(message["cache_dir"]), message["cache_bytes"])
    builder = Builder(
        open_store(folder, None if address is None else StoreAddress.from_json(address)),
        message["toolchain"],
        message["environment"],
        Path(message["scratch_dir"]),
        Confinement.from_json(message["confinement"]),
        slots=message["slots"],
        prepared=message["prepared"],
    )
    try:
        with contextlib.suppress(messages.ConnectionClosed):
            while True:
                message, descriptors = messages.receive(supervisor)
                if message["op"] == "session":
                    end = socket.socket(fileno=descriptors[0])
                    sessions[message["id"]] = _Session(message["id"], builder, end, message["timeout_s"])
                elif message["op"] == "report":
                    messages.send(supervisor, sessions[message["id"]].report())
                else:
                    sessions.pop(message["id"]).close()
    finally:
        builder.close()
        # Threads that wait for a compiler or a lock must not hold the process.
        os._exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]))
