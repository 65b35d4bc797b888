"""A runner as its engine supervises it: the process, its build session, its control socket, what it prints.

Torch-free.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Final

from evaluator.build.client import BuilderProcess
from evaluator.config import Limits
from evaluator.errors import EvaluationCancelled, InfrastructureFault
from evaluator.protocol import FRAME_BYTES, Frame, FrameKind
from evaluator.sandbox.capture import Capture
from evaluator.sandbox.client import ForkServer, RunnerProcess

__all__ = ["Discovery", "SupervisedRunner", "supervised_runner"]

_DRAIN_S: Final = 1.0
_POLL_S: Final = 0.2

_log = logging.getLogger(__name__)


class Discovery(Enum):
    """How importing a module to find its extensions ended. ``TIMED_OUT``: compilers not counted."""

    IMPORTED = auto()
    FAILED = auto()
    TIMED_OUT = auto()


@dataclass
class SupervisedRunner:
    """One runner with everything that belongs to it. ``builds`` are those that ``learn_builds`` has found."""

    process: RunnerProcess
    forkserver: ForkServer
    builder: BuilderProcess
    control: socket.socket
    build_session: int
    printed: Capture
    builds: list[dict[str, Any]] = field(default_factory=list)

    def begin_kill(self) -> None:
        """Have it ended without waiting for it; ``kill`` waits."""
        # A fork server that does not answer is replaced, and its runners end with it.
        with contextlib.suppress(InfrastructureFault):
            self.forkserver.begin_kill(self.process)

    def kill(self) -> None:
        """End it and everything that it started. Idempotent."""
        with contextlib.suppress(InfrastructureFault):
            self.forkserver.kill(self.process)

    def await_discovery(
        self, load_s: float, on_wait: Callable[[float], None], cancelled: Callable[[], bool]
    ) -> Discovery:
        """Wait until the runner says that it has imported the module, has failed to, or has ended.

        ``on_wait`` is told from time to time how many seconds have passed. Raises ``EvaluationCancelled``.
        """
        self.control.settimeout(_POLL_S)
        data, waited_s, begin = b"", 0.0, time.monotonic()
        while len(data) < FRAME_BYTES:
            if cancelled():
                raise EvaluationCancelled
            try:
                part = self.control.recv(FRAME_BYTES - len(data))
            except TimeoutError:
                on_wait(time.monotonic() - begin)
                if not self.builder.busy(self.build_session):
                    waited_s += _POLL_S
                if waited_s > load_s:
                    return Discovery.TIMED_OUT
                continue
            except ConnectionError:
                return Discovery.FAILED
            if not part:
                return Discovery.FAILED
            data += part
        frame = Frame.decode(data)
        return Discovery.IMPORTED if frame is not None and frame.kind is FrameKind.READY else Discovery.FAILED

    def learn_builds(self) -> None:
        """Ask the builder what the runner had built. Raises ``InfrastructureFault``."""
        self.builds = self.builder.report(self.build_session)
        for build in self.builds:
            if build.get("infrastructure"):
                raise InfrastructureFault(f"the builder failed: {build['error']}")

    def log(self, limit: int) -> str:
        """Compiler output, then what the candidate printed; of each build no more than ``limit`` characters."""
        parts = [
            f"== building extension {build['name']} ({build['seconds']:.1f} s"
            f"{', cached' if build.get('cached') else ''})\n{build['log'][:limit]}"
            for build in self.builds
        ]
        printed = self.printed.text(_DRAIN_S)
        if printed.strip():
            parts.append(f"== printed by the candidate\n{printed}")
        return "\n".join(parts).replace(f"{self.process.directory}/", "")


@contextlib.contextmanager
def supervised_runner(
    forkserver: ForkServer, builder: BuilderProcess, spec: Mapping[str, Any], limits: Limits
) -> Iterator[SupervisedRunner]:
    """A runner over its private directory. Whatever happens, it is gone at the end, and its files."""
    ours, theirs = socket.socketpair()
    session, build_end = builder.open_session(limits.build_s)
    printed = Capture(limits.log_bytes)
    runner: SupervisedRunner | None = None
    try:
        process = forkserver.spawn(spec, [theirs.fileno(), build_end.fileno(), printed.descriptor])
        # The runner alone holds these ends now, so that its death is the end of all of them.
        theirs.close()
        build_end.close()
        printed.close_writer()
        runner = SupervisedRunner(process, forkserver, builder, ours, session, printed)
        yield runner
    finally:
        theirs.close()
        build_end.close()
        printed.close_writer()
        if runner is not None:
            runner.kill()
            _log.debug("a runner ended, pid %d, wait status %s", runner.process.pid, runner.process.status)
        ours.close()
        with contextlib.suppress(InfrastructureFault):
            builder.close_session(session)
