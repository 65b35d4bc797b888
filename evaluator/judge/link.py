"""The judge's end of one runner: commands out, doorbell, fixed-size frames in."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from evaluator.protocol import messages
from evaluator.protocol.control_page import (
    FRAME_BYTES,
    CallMode,
    CallReport,
    Doorbell,
    Failure,
    Frame,
    FrameKind,
    Location,
    WeightReport,
)
from evaluator.protocol.shared_memory import Block

__all__ = ["RunnerFailed", "RunnerGone", "RunnerLink", "RunnerTimeout", "TimedCall"]


_SEND_S: Final = 30.0
_WORDS: Final = {
    CallMode.FORWARD: "forward",
    CallMode.BACKWARD: "forward and backward",
    CallMode.DELIVER: "copying the outputs",
    CallMode.PREPARE: "answering",
    CallMode.PREPARE_WARM: "answering",
}


def _nothing(_number: int = 0) -> None:
    """Do nothing."""


class RunnerFailed(Exception):
    """The runner reported that the candidate failed."""

    def __init__(self, failure: Failure, text: str) -> None:
        super().__init__(text)
        self.failure = failure
        self.text = text


class RunnerGone(Exception):
    """The runner's process ended, or it broke the protocol; its supervisor knows the exit status."""


class RunnerTimeout(Exception):
    """The runner did not answer in time; the message names the expected answer."""


@dataclass(frozen=True)
class TimedCall:
    """One call: the judge's clock around it and the runner's reports about it."""

    outer_ms: float
    report: CallReport
    precheck_ms: float = 0.0
    """The time of the judge's last steps on the device, with every process stopped."""
    waited_ms: float = 0.0
    """On a CPU: the time in which the runner's threads waited for a processor, all together, including waking."""
    steps_ms: Mapping[str, float] = field(default_factory=dict)
    """The time of each step of judging it."""


class RunnerLink:
    """One runner, from its first frame to its end."""

    def __init__(self, control: socket.socket, spin_s: float) -> None:
        self._control = control
        self._spin_s = spin_s
        self._doorbell, self._descriptors = Doorbell.create(spin_s)
        self._sequence = 0
        self.shares = False
        """Whether the runner has its model and the shared memory."""

    def await_ready(self, timeout_s: float, what: str, *, since: float | None = None) -> None:
        """Wait for a ready frame, from now on or ``since`` then (monotonic, in seconds). ``what`` names it in messages.
        Raises ``RunnerFailed``, ``RunnerGone`` or ``RunnerTimeout``."""
        frame = self._read_frame(timeout_s, what, time.monotonic() if since is None else since)
        if frame.kind is FrameKind.FAILED:
            raise RunnerFailed(frame.failure, frame.text)

    def begin_construct(self, message: Mapping[str, Any]) -> None:
        """Have the model constructed, without waiting for it: a ready frame reports the end."""
        self._send({**message, "spin_s": self._spin_s}, self._descriptors)
        for descriptor in self._descriptors:
            os.close(descriptor)
        self._descriptors = []

    def share(self, message: Mapping[str, Any], blocks: Mapping[str, Block], timeout_s: float) -> None:
        """Have the shared blocks opened, once the model is constructed."""
        handles = {name: block.handle for name, block in blocks.items()}
        descriptors = [block.fd for block in blocks.values() if block.fd is not None]
        self._order({**message, "op": "open", "blocks": handles}, descriptors)
        self.await_ready(timeout_s, "opening the shared memory")
        self.shares = True

    def close_shared(self, timeout_s: float) -> None:
        """Have the shared blocks closed; only ``share`` may follow."""
        self.command({"op": "close_shared"}, timeout_s)
        self.shares = False

    def command(self, message: Mapping[str, Any], timeout_s: float) -> None:
        """Have a command carried out between two calls."""
        self._order(message)
        self.await_ready(timeout_s, str(message["op"]))

    def _order(self, message: Mapping[str, Any], descriptors: Sequence[int] = ()) -> None:
        self._sequence += 1
        # The runner reads only then, and unread messages need not fit into the socket.
        self._doorbell.release(self._sequence, CallMode.MESSAGE)
        self._send(message, descriptors)

    def call(
        self,
        mode: CallMode,
        timeout_s: float,
        *,
        before: Callable[[int], None] = _nothing,
        wake: Callable[[], None] = _nothing,
        on_done: Callable[[], None] = _nothing,
    ) -> TimedCall:
        """Release one call and wait until the runner says that it is done.

        The judge's clock starts before ``before``, which is given the call's number and comes before the release. It
        stops after ``on_done``, so everything that ``on_done`` reads must be there by then. ``wake`` follows the
        release.
        """
        self._sequence += 1
        begin_ns = time.perf_counter_ns()
        before(self._sequence)
        self._doorbell.release(self._sequence, mode)
        wake()
        try:
            done = self._doorbell.await_done(self._sequence, time.monotonic() + timeout_s, self._control.fileno())
        except TimeoutError:
            raise RunnerTimeout(f"{_WORDS[mode]} took longer than {timeout_s:.0f} s") from None
        if not done:
            self.await_ready(timeout_s, _WORDS[mode])
            raise RunnerGone
        on_done()
        outer_ms = (time.perf_counter_ns() - begin_ns) / 1e6
        return TimedCall(outer_ms, self._doorbell.report())

    def locations(self, count: int) -> list[Location]:
        """Return the reported locations of the first ``count`` tensors of the runner's latest call."""
        return self._doorbell.locations(count)

    def state_outputs(self) -> int:
        """Return the outputs that the runner reports as parameters or buffers of the model: bit i, output i. Call it
        after a delivery."""
        return self._doorbell.state_outputs()

    def weight_report(self) -> WeightReport:
        return self._doorbell.weight_report()

    def close(self) -> None:
        """Close the control socket. A well-behaved runner ends when it sees that."""
        self._control.close()
        self._doorbell.close()
        for descriptor in self._descriptors:
            os.close(descriptor)
        self._descriptors = []

    def _send(self, message: Mapping[str, Any], descriptors: Sequence[int] = ()) -> None:
        # A runner that does not read must not block the judge.
        self._control.settimeout(_SEND_S)
        try:
            messages.send(self._control, message, descriptors)
        except messages.ConnectionClosed:
            raise RunnerGone from None
        except TimeoutError:
            raise RunnerTimeout(f"the runner did not take a message within {_SEND_S:.0f} s") from None
        finally:
            self._control.settimeout(None)

    def _read_frame(self, timeout_s: float, what: str, since: float) -> Frame:
        deadline = since + timeout_s
        data = b""
        while len(data) < FRAME_BYTES:
            if not select.select([self._control], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise RunnerTimeout(f"{what} took longer than {timeout_s:.0f} s")
            part = b""
            with contextlib.suppress(ConnectionError):
                part = self._control.recv(FRAME_BYTES - len(data))
            if not part:
                raise RunnerGone
            data += part
        frame = Frame.decode(data)
        if frame is None:
            raise RunnerGone
        return frame
