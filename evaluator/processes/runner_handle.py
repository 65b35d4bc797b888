"""A runner as its engine supervises it: the process, its build session, its control socket, its output.

Torch-free.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from pathlib import Path
from typing import Any, Final

from evaluator.builder.client import BuilderProcess
from evaluator.config import EvalConfig, Limits
from evaluator.errors import EvaluationCancelled, InfrastructureFault
from evaluator.problems.problem import Problem
from evaluator.protocol import messages
from evaluator.protocol.control_page import FRAME_BYTES, Frame, FrameKind
from evaluator.sandbox.capture import Capture
from evaluator.sandbox.client import ForkServer, RunnerProcess

__all__ = ["Discovery", "RunnerHandle", "begin_runner"]

_DRAIN_S: Final = 1.0
_WARM_S: Final = 60.0
_POLL_S: Final = 0.2

_log = logging.getLogger(__name__)


class Discovery(Enum):
    """The end of importing a module to find its extensions. ``TIMED_OUT``: compilers not counted."""

    IMPORTED = auto()
    FAILED = auto()
    TIMED_OUT = auto()


@dataclass
class RunnerHandle:
    """One runner with everything that belongs to it. ``builds`` are those that ``learn_builds`` has found."""

    process: RunnerProcess
    forkserver: ForkServer
    builder: BuilderProcess
    control: socket.socket
    build_session: int
    printed: Capture
    builds: list[dict[str, Any]] = field(default_factory=list)
    _warming: bool = field(default=False, repr=False)
    _warm: bool = field(default=False, repr=False)
    _closed: bool = field(default=False, repr=False)

    @property
    def alive(self) -> bool:
        """Whether its process runs, as far as is known. Raises ``InfrastructureFault`` where that cannot be told."""
        return self.forkserver.alive and self.forkserver.poll(self.process) is None

    @property
    def pid(self) -> int | None:
        """The number of its process; ``None`` while that is being forked, and once it has ended."""
        with contextlib.suppress(InfrastructureFault):
            return self.process.pid or None if self.alive else None
        return None

    def await_forked(self) -> None:
        """Wait until its process is there. Raises ``InfrastructureFault``."""
        self.forkserver.await_spawned(self.process)

    def begin_warm_up(self) -> None:
        """Have it do all preparations that need no task, on its device as well. Idempotent.

        Raises ``InfrastructureFault``.
        """
        if self._warming:
            return
        self._warming = True
        try:
            messages.send(self.control, {"warm_up": True})
        except messages.ConnectionClosed as error:
            raise InfrastructureFault("a runner ended before it was warm") from error

    def await_warm(self, cancelled: Callable[[], bool] = lambda: False) -> None:
        """Wait until it is warm, and ready for its task. Idempotent.

        Raises ``InfrastructureFault`` and ``EvaluationCancelled``.
        """
        if self._warm:
            return
        self.begin_warm_up()
        deadline = time.monotonic() + _WARM_S

        def wait_on() -> bool:
            if cancelled():
                raise EvaluationCancelled
            return time.monotonic() < deadline

        frame = self._receive_frame(wait_on)
        if frame is None or frame.kind is not FrameKind.READY:
            why = "" if frame is None else f": {frame.text}"
            raise InfrastructureFault(f"a runner did not get ready to import anything{why}")
        self._warm = True

    def keep_log_fields(self) -> None:
        """Give the caller's log fields to this runner from now on."""
        self.forkserver.keep_log_fields(self.process.number)
        self.builder.keep_log_fields(self.build_session)

    def assign(self, problem: Problem, config: EvalConfig, source: str | None, compiled: int | None = None) -> None:
        """Have it import a candidate's ``source``, or the reference where there is none.

        ``compiled``: a descriptor of an archive with earlier files of its compilers. From now on the runner has the
        caller's log fields. Raises ``InfrastructureFault`` and ``ProblemError``.
        """
        files, module, class_name = {"model.py": problem.sized_source(config.size)}, "model", "Model"
        if source is not None:
            files["candidate.py"], module, class_name = source, "candidate", "ModelNew"
        self.await_warm()
        self.keep_log_fields()
        task = {"files": files, "module": module, "class_name": class_name, "tf32": problem.tf32_in(config)}
        try:
            messages.send(self.control, task, [] if compiled is None else [compiled])
        except messages.ConnectionClosed as error:
            raise InfrastructureFault("a runner ended before it was given anything to do") from error

    def close(self) -> None:
        """End it, with everything that it started and that belongs to it. Idempotent."""
        if self._closed:
            return
        self._closed = True
        self.kill()
        _log.debug("a runner ended, pid %d, wait status %s", self.process.pid, self.process.status)
        self.control.close()
        if self.process.archive:
            Path(self.process.archive).unlink(missing_ok=True)
        with contextlib.suppress(InfrastructureFault):
            self.builder.close_session(self.build_session)

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
        """Wait until the runner reports that it has imported the module or has failed to, or until it has ended.

        ``on_wait`` gets the seconds passed, from time to time. Raises ``EvaluationCancelled``.
        """
        waited_s = 0.0
        begin = latest = time.monotonic()

        def wait_on() -> bool:
            nonlocal waited_s, latest
            now = time.monotonic()
            if not self.builder.busy(self.build_session):
                waited_s += now - latest
            if cancelled():
                raise EvaluationCancelled
            on_wait(now - begin)
            latest = time.monotonic()  # the time that this process took is not the runner's
            return waited_s <= load_s

        frame = self._receive_frame(wait_on)
        if waited_s > load_s:
            return Discovery.TIMED_OUT
        return Discovery.IMPORTED if frame is not None and frame.kind is FrameKind.READY else Discovery.FAILED

    def _receive_frame(self, wait_on: Callable[[], bool]) -> Frame | None:
        """Return the next frame; ``None`` where the runner ends first or sends something else.

        ``wait_on`` is called every moment; the wait ends with ``None`` where it returns false.
        """
        self.control.settimeout(_POLL_S)
        data = b""
        try:
            while len(data) < FRAME_BYTES:
                if not wait_on():
                    return None
                try:
                    part = self.control.recv(FRAME_BYTES - len(data))
                except TimeoutError:
                    continue
                except OSError:
                    return None
                if not part:
                    return None
                data += part
        finally:
            self.control.settimeout(None)
        return Frame.decode(data)

    def learn_builds(self) -> None:
        """Get the runner's builds from the builder. Raises ``InfrastructureFault``."""
        self.builds = self.builder.report(self.build_session)
        for build in self.builds:
            if build.get("infrastructure"):
                raise InfrastructureFault(f"the builder failed: {build['error']}")

    def log(self, limit: int) -> str:
        """Compiler output, then the candidate's output; of each build no more than ``limit`` characters."""
        parts = [
            f"== building extension {build['name']} ({build['seconds']:.1f} s"
            f"{', cached' if build.get('cached') else ''})\n{build['log'][:limit]}"
            for build in self.builds
        ]
        printed = self.printed.text(_DRAIN_S)
        if printed.strip():
            parts.append(f"== printed by the candidate\n{printed}")
        return "\n".join(parts).replace(f"{self.process.directory}/", "")


def begin_runner(
    forkserver: ForkServer, builder: BuilderProcess, spec: Mapping[str, Any], limits: Limits
) -> RunnerHandle:
    """Begin a runner over its private directory, which is being forked: ``await_forked`` waits for it.

    ``close`` is to be called in any case. Raises ``InfrastructureFault``.
    """
    ours, theirs = socket.socketpair()
    session, build_end = builder.open_session(limits.build_s)
    printed = Capture(limits.log_bytes)
    try:
        process = forkserver.begin_spawn(spec, [theirs.fileno(), build_end.fileno(), printed.descriptor])
    except BaseException:
        ours.close()
        with contextlib.suppress(InfrastructureFault):
            builder.close_session(session)
        raise
    finally:
        # The runner alone holds these ends now, so that its death is the end of all of them.
        theirs.close()
        build_end.close()
        printed.close_writer()
    return RunnerHandle(process, forkserver, builder, ours, session, printed)
