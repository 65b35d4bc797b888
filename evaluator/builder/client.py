"""The supervisor's side of the builder's process."""

from __future__ import annotations

import itertools
import socket
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from evaluator.artifact_store import StoreAddress
from evaluator.errors import InfrastructureFault
from evaluator.protocol.child_process import ChildProcess
from evaluator.sandbox.confinement import Confinement

__all__ = ["BuilderProcess"]

_STOP_S: Final = 10.0
_ANSWER_S: Final = 60.0
# Shared by all builders of this process, so that no number of a session is used twice.
_numbers = itertools.count(1)


class BuilderProcess(ChildProcess):
    """One builder, with a session per runner. Safe to use from several threads."""

    def __init__(
        self,
        *,
        cache_dir: Path,
        cache_bytes: int,
        scratch_dir: Path,
        toolchain: Mapping[str, Any],
        environment: Mapping[str, str],
        confinement: Confinement,
        slots: int,
        prepared: Mapping[str, Path],
        artifact_store: StoreAddress | None = None,
    ) -> None:
        super().__init__("evaluator.builder", environment=environment, display_name="the builder", stop_s=_STOP_S)
        self._settings = {
            "cache_dir": str(cache_dir),
            "cache_bytes": cache_bytes,
            "scratch_dir": str(scratch_dir),
            "toolchain": dict(toolchain),
            "environment": dict(environment),
            "confinement": confinement.to_json(),
            "slots": slots,
            "prepared": {name: str(folder) for name, folder in prepared.items()},
            # Sent, and not in its environment, because it starts compilers.
            "artifact_store": None if artifact_store is None else artifact_store.to_json(),
        }
        self._lock = threading.Lock()

    def start(self) -> None:
        self._launch(_ANSWER_S)
        self._send(self._settings)

    def open_session(self, timeout_s: float) -> tuple[int, socket.socket]:
        """Return a session's number, and the end of its socket for the runner (the caller closes it).

        ``timeout_s``: the limit of a single build, in seconds.
        """
        ours, theirs = socket.socketpair()
        number = next(_numbers)
        with self._lock:
            self.keep_log_fields(number)
            self._send({"op": "session", "id": number, "timeout_s": timeout_s}, [ours.fileno()])
        ours.close()
        return number, theirs

    def report(self, number: int) -> list[dict[str, Any]]:
        """Return the builds of the session's runner so far, in order; failures have an ``error``."""
        builds: list[dict[str, Any]] = self._ask(number)["builds"]
        return builds

    def busy(self, number: int) -> bool:
        """Whether the session's runner is waiting for a build right now."""
        return bool(self._ask(number)["busy"])

    def close_session(self, number: int) -> None:
        with self._lock:
            self._send({"op": "end", "id": number})

    def _ask(self, number: int) -> dict[str, Any]:
        with self._lock:
            self._send({"op": "report", "id": number})
            try:
                return self._receive()
            except InfrastructureFault:
                # Out of step with this process, so it is of no more use; the next evaluation gets another.
                self.close()
                raise
