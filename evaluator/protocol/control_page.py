"""The communication between judge and runner.

Judge to runner: JSON messages (``evaluator.protocol.messages``) for everything that is not timed, and a *doorbell* in a
shared page for the timed calls. Runner to judge: the same page for "done", and fixed-size frames with one bounded text
for "ready" and "failed". The judge copies a frame once, reads fixed fields and treats the text as opaque. It reads
nothing else that a runner sends.

Beside the page there is a socket that wakes a blocked side, and that orders the page. Data written before a ring is
visible to the side that has received the ring. The page (little endian; 64 KiB)::

    0   u64  go      sequence number of the call that the judge has released
    8   u64  mode    kind of the call (CallMode)
    64  u64  done    sequence number of the call that the runner has finished
    72  u64  device_ns   the runner's own figure for the call, nanoseconds
    80  u64  peak_bytes  peak of the runner's device allocator since the last request for it; at PREPARE
    88  32B  present     bit 0: the outputs carry a graph; bit 1 + i: gradient i exists
    120 u64  forward_ns  the forward's part of device_ns, where there is a backward
    128 32B  counterparts  bit i: the candidate has a counterpart of the reference's weight i
    160 32B  transposed    bit i: it is its transpose
    192 128B differing   bit i: the tensor with name and shape of the reference's tensor i (parameters, then buffers)
                         has another value
    320 128B taking      bit i: a tensor takes other values of the reference's tensor i
    448 128B named       bit i: it was found by its name
    576 64B  kept        bit i: output i lies in a parameter or buffer of the model; at the delivery
    640 144B each  locations  locations of outputs, gradients of inputs and gradients of weights at "done" (Location)
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import select
import socket
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

__all__ = [
    "FRAME_BYTES",
    "MAX_DIMENSIONS",
    "MAX_GRADIENTS",
    "MAX_LOCATIONS",
    "MAX_TENSORS",
    "MEMORY_PROBE",
    "CallMode",
    "CallReport",
    "Doorbell",
    "Failure",
    "Frame",
    "FrameKind",
    "Location",
    "LocationKind",
    "WeightReport",
    "sealed_memory",
]

PAGE_BYTES: Final = 2**16
FRAME_BYTES: Final = 8192
MAX_GRADIENTS: Final = 255
MAX_TENSORS: Final = 1024
"""The most parameters and buffers of a reference, together."""
_POLL_S: Final = 0.001
"""The interval of checks for a failed runner, in seconds. A check takes microseconds, and may delay a call's end."""
_DONE_AT: Final = 64
_REPORT_AT: Final = 72
_REPORT: Final = struct.Struct("<QQ32sQ")
_WEIGHTS_AT: Final = 128
_KEPT_AT: Final = 576
_KEPT_BYTES: Final = 64
_LOCATIONS_AT: Final = 640
_LOCATION: Final = struct.Struct("<QQ8q64s")
MAX_DIMENSIONS: Final = 8
"""The most dimensions of a tensor whose location can be reported."""
MAX_LOCATIONS: Final = (PAGE_BYTES - _LOCATIONS_AT) // _LOCATION.size
MEMORY_PROBE: Final = 0x6B65726E656C6A75
"""An int64 that the judge reads in a runner's memory as a test; memory does not hold it by chance."""
_MASK_BYTES: Final = (32, 32, 128, 128, 128)
_WEIGHTS: Final = struct.Struct("<" + "".join(f"{size}s" for size in _MASK_BYTES))
_FRAME_HEAD: Final = struct.Struct("<4sIII")
_MAGIC: Final = b"kjf1"


class CallMode(IntEnum):
    """The kind of the released call. ``MESSAGE``: no call; read a message from the control socket.

    - ``DELIVER``: copy the results of the call before into the shared memory, for a judge that does not read them by
      itself. It is a call of its own because the inputs are taken away before it: nothing can be computed any more by
      then.
    - ``PREPARE``: answer once the runner is running, with its clock at hand and the peak memory up to then. On CUDA,
      results without a requested delivery are spoiled by then.
    - ``PREPARE_WARM``: likewise between two calls in a row, of which the first leaves the caches to the second: its
      results are not touched.
    """

    MESSAGE = 0
    FORWARD = 1
    BACKWARD = 2
    DELIVER = 3
    PREPARE = 4
    PREPARE_WARM = 5


class FrameKind(IntEnum):
    READY = 1
    FAILED = 2


class Failure(IntEnum):
    """The kind of a failure that a runner reports. A report can only be to the runner's own disadvantage."""

    NONE = 0
    LOAD = 1
    CONSTRUCT = 2
    RUNTIME = 3
    OUT_OF_MEMORY = 4
    WRONG_SHAPE = 5
    WRONG_DTYPE = 6


@dataclass(frozen=True)
class Frame:
    """One fixed-size frame from the runner. ``text`` is the runner's, bounded and never interpreted."""

    kind: FrameKind
    failure: Failure
    text: str

    def encode(self) -> bytes:
        """Always ``FRAME_BYTES`` long; the text is cut to fit."""
        room = FRAME_BYTES - _FRAME_HEAD.size
        text = self.text.encode("utf-8", "replace")[:room]
        head = _FRAME_HEAD.pack(_MAGIC, self.kind, self.failure, len(text))
        return head + text.ljust(room, b"\0")

    @classmethod
    def decode(cls, data: bytes) -> Frame | None:
        """Return the frame in ``data``, or ``None`` where it is no valid frame."""
        if len(data) != FRAME_BYTES:
            return None
        magic, kind, failure, length = _FRAME_HEAD.unpack_from(data)
        if magic != _MAGIC or length > FRAME_BYTES - _FRAME_HEAD.size:
            return None
        try:
            frame_kind, frame_failure = FrameKind(kind), Failure(failure)
        except ValueError:
            return None
        text = data[_FRAME_HEAD.size : _FRAME_HEAD.size + length].decode("utf-8", "replace")
        return cls(frame_kind, frame_failure, text)


@dataclass(frozen=True)
class CallReport:
    """The runner's claims about a call. They are claims only: the judge's clock and comparison decide."""

    device_ms: float
    peak_bytes: int
    present: int
    forward_ms: float


@dataclass(frozen=True)
class WeightReport:
    """The runner's claims about the candidate's weights (see ``evaluator.runner.weights``).

    Each is a set of bits, by index. The bits of the first two fields are the reference's parameters; those of the
    others are its parameters and then its buffers.
    """

    counterparts: int = 0
    transposed: int = 0
    differing: int = 0
    taking: int = 0
    named: int = 0


class LocationKind(IntEnum):
    """The place of a tensor at "done". ``SHARED``: copied to its place in the shared memory already."""

    ABSENT = 0
    SHARED = 1
    PRIVATE = 2


@dataclass(frozen=True)
class Location:
    """The claimed location of one tensor of a call, for the judge to read there before its clock stops.

    For a tensor in the runner's ``PRIVATE`` memory on a CPU, ``address`` is that of its first element. On CUDA it is
    the number of bytes from the begin of an allocation to that element, and ``handle`` lets another process open the
    allocation. ``strides`` in elements. The bits at this location are the call's result, whatever the runner claims.
    """

    kind: LocationKind
    address: int = 0
    strides: tuple[int, ...] = ()
    handle: bytes = b""

    def encode(self) -> bytes:
        strides = (*self.strides, *(0,) * (MAX_DIMENSIONS - len(self.strides)))
        return _LOCATION.pack(self.kind, self.address, *strides, self.handle)

    @classmethod
    def decode(cls, data: bytes) -> Location:
        """Read the location in ``data``; an invalid one is ``ABSENT``."""
        kind, address, *strides, handle = _LOCATION.unpack(data)
        try:
            return cls(LocationKind(kind), address, tuple(strides), handle)
        except ValueError:
            return cls(LocationKind.ABSENT)


def sealed_memory(name: str, size: int) -> int:
    """A memfd of ``size`` bytes with a sealed size: a peer that could shrink it would kill its reader."""
    fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, size)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
    return fd


class Doorbell:
    """The shared page and a waking socket; both sides hold one of these over the same memory.

    ``spin_s``: how long to spin on the page before blocking, in seconds. Microseconds of delay matter on a GPU, while
    on a CPU a spinning judge would take a core away from the measured process.
    """

    def __init__(self, page_fd: int, wake_socket: socket.socket, spin_s: float) -> None:
        self._page = mmap.mmap(page_fd, PAGE_BYTES)
        self._wake_socket = wake_socket
        self._spin_s = spin_s

    @classmethod
    def create(cls, spin_s: float) -> tuple[Doorbell, list[int]]:
        """Create a doorbell, and the two descriptors for the other side (the caller closes them)."""
        page_fd = sealed_memory("doorbell", PAGE_BYTES)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        return cls(page_fd, ours, spin_s), [page_fd, theirs.detach()]

    @classmethod
    def join(cls, descriptors: list[int], spin_s: float) -> Doorbell:
        """The other side of ``create``."""
        page_fd, wake_fd = descriptors
        doorbell = cls(page_fd, socket.socket(fileno=wake_fd), spin_s)
        os.close(page_fd)
        return doorbell

    def release(self, sequence: int, mode: CallMode) -> None:
        """Judge: let the runner go."""
        # The order in which another processor sees stores is not certain everywhere: the ring decides (see ``_wait``).
        self._page[8:16] = int(mode).to_bytes(8, "little")
        self._page[0:8] = sequence.to_bytes(8, "little")
        self._ring()

    def await_release(self, sequence: int) -> CallMode:
        """Runner: block until call ``sequence`` is released."""
        self._wait(0, sequence, None, None)
        return CallMode(int.from_bytes(self._page[8:16], "little"))

    def finish(
        self, sequence: int, device_ns: int, peak_bytes: int, present: int, forward_ns: int = 0, kept: int = 0
    ) -> None:
        """Runner: report that call ``sequence`` is finished."""
        self._page[_KEPT_AT : _KEPT_AT + _KEPT_BYTES] = kept.to_bytes(_KEPT_BYTES, "little")
        _REPORT.pack_into(self._page, _REPORT_AT, device_ns, peak_bytes, present.to_bytes(32, "little"), forward_ns)
        self._page[_DONE_AT : _DONE_AT + 8] = sequence.to_bytes(8, "little")
        self._ring()

    def await_done(self, sequence: int, deadline: float, interrupt_fd: int) -> bool:
        """Judge: wait until the runner reports that ``sequence`` is done.

        False where ``interrupt_fd`` became readable first (a failure frame, or the runner died). Raises
        ``TimeoutError`` at ``deadline`` (``time.monotonic``).
        """
        return self._wait(_DONE_AT, sequence, deadline, interrupt_fd)

    def report(self) -> CallReport:
        """Judge: the runner's claims about the call just finished."""
        device_ns, peak_bytes, present, forward_ns = _REPORT.unpack_from(
            bytes(self._page[_REPORT_AT : _REPORT_AT + _REPORT.size])
        )
        return CallReport(device_ns / 1e6, peak_bytes, int.from_bytes(present, "little"), forward_ns / 1e6)

    def state_outputs(self) -> int:
        """Judge: the runner's claim, at a delivery, about the outputs that are the model's own state."""
        return int.from_bytes(self._page[_KEPT_AT : _KEPT_AT + _KEPT_BYTES], "little")

    def tell_locations(self, locations: Sequence[bytes]) -> None:
        """Runner: report the locations of a call's tensors (``Location.encode``), ``MAX_LOCATIONS`` at the most.

        To be called before ``finish``, or before a ready frame.
        """
        encoded = b"".join(locations)
        self._page[_LOCATIONS_AT : _LOCATIONS_AT + len(encoded)] = encoded

    def locations(self, count: int) -> list[Location]:
        """Judge: return the claimed locations of the first ``count`` tensors; those beyond ``MAX_LOCATIONS`` are
        ``SHARED``.
        """
        told = min(count, MAX_LOCATIONS)
        data = bytes(self._page[_LOCATIONS_AT : _LOCATIONS_AT + told * _LOCATION.size])
        parts = (data[at : at + _LOCATION.size] for at in range(0, len(data), _LOCATION.size))
        return [*map(Location.decode, parts), *[Location(LocationKind.SHARED)] * (count - told)]

    def describe_weights(self, found: WeightReport) -> None:
        """Runner: report the findings about the weights; valid from the next ready frame on."""
        masks = (found.counterparts, found.transposed, found.differing, found.taking, found.named)
        parts = [mask.to_bytes(size, "little") for mask, size in zip(masks, _MASK_BYTES, strict=True)]
        _WEIGHTS.pack_into(self._page, _WEIGHTS_AT, *parts)

    def weight_report(self) -> WeightReport:
        """Judge: the runner's claims about the weights."""
        parts = _WEIGHTS.unpack_from(bytes(self._page[_WEIGHTS_AT : _WEIGHTS_AT + _WEIGHTS.size]))
        return WeightReport(*(int.from_bytes(part, "little") for part in parts))

    def close(self) -> None:
        self._page.close()
        self._wake_socket.close()

    def _ring(self) -> None:
        # Never blocks, whatever the other side does with its end: with a full buffer it will wake anyway.
        with contextlib.suppress(BlockingIOError, ConnectionError):
            self._wake_socket.send(b"!", socket.MSG_DONTWAIT)

    def _take_ring(self) -> bool | None:
        """Take one ring off the socket; ``None`` where there is none, ``False`` where the other side is gone."""
        try:
            return bool(self._wake_socket.recv(1, socket.MSG_DONTWAIT))
        except BlockingIOError:
            return None
        except ConnectionError:
            return False

    def _wait(self, at: int, sequence: int, deadline: float | None, interrupt_fd: int | None) -> bool:
        """Wait until the word ``at`` is ``sequence``, and its ring was received.

        Without the ring, a processor that does not keep stores in order (ARM) might show the word too early. Data that
        was written ahead of it, here or in the memory of tensors, would not be visible yet. The kernel puts a ring into
        a queue and takes it out under one lock. So data written before the ring went in is visible to the side that has
        taken it out.
        """
        page, wanted = self._page, sequence.to_bytes(8, "little")
        spin_until = time.monotonic() + self._spin_s
        waiting = [self._wake_socket.fileno()] + ([] if interrupt_fd is None else [interrupt_fd])
        ring_received, next_check = False, 0.0
        while True:
            is_there = page[at : at + 8] == wanted
            if is_there and ring_received:
                return True
            now = time.monotonic()
            if deadline is not None and now >= deadline:
                raise TimeoutError
            readable = waiting[:1] if is_there else []
            if now >= spin_until:
                # A runner that has reported "done" may end in the next moment: its ring comes first.
                left = None if deadline is None else deadline - now
                readable, _, _ = select.select(waiting[:1] if is_there else waiting, [], [], left)
            elif interrupt_fd is not None and now >= next_check and not is_there:
                # A runner that fails sends no ring, and spinning to the end takes as long as a short evaluation.
                readable, _, _ = select.select([interrupt_fd], [], [], 0)
                next_check = now + _POLL_S
            if self._wake_socket.fileno() in readable:
                ring = self._take_ring()
                if ring is False:
                    if interrupt_fd is None:
                        raise ConnectionError("the judge is gone")
                    return page[at : at + 8] == wanted
                ring_received = ring_received or bool(ring)
            if interrupt_fd in readable and page[at : at + 8] != wanted:
                return False
