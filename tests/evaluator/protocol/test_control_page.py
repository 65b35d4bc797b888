"""Frames, the doorbell and the wire: what a hostile or dying peer can do to them."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluator.protocol import messages
from evaluator.protocol.control_page import (
    FRAME_BYTES,
    MAX_LOCATIONS,
    CallMode,
    Doorbell,
    Failure,
    Frame,
    FrameKind,
    Location,
    LocationKind,
)


class Ends:
    """Both ends of what the tests talk over; closed when the test is over."""

    def __init__(self, stack: contextlib.ExitStack) -> None:
        self._stack = stack

    def doorbell(self, spin_s: float = 0.0) -> tuple[Doorbell, Doorbell]:
        judge, descriptors = Doorbell.create(spin_s)
        runner = Doorbell.join(descriptors, spin_s)
        for end in (judge, runner):
            self._stack.callback(end.close)
        return judge, runner

    def sockets(self) -> tuple[socket.socket, socket.socket]:
        left, right = socket.socketpair()
        return self._stack.enter_context(left), self._stack.enter_context(right)


@pytest.fixture
def ends() -> Iterator[Ends]:
    with contextlib.ExitStack() as stack:
        yield Ends(stack)


@given(st.text(max_size=20000))
def test_a_frame_survives_the_way_whatever_its_text(text: str) -> None:
    data = Frame(FrameKind.FAILED, Failure.RUNTIME, text).encode()
    assert len(data) == FRAME_BYTES
    frame = Frame.decode(data)
    assert frame is not None
    assert (frame.kind, frame.failure) == (FrameKind.FAILED, Failure.RUNTIME)
    assert frame.text[:100] == text.encode("utf-8", "replace").decode()[:100]


@given(st.binary(max_size=FRAME_BYTES + 10))
def test_arbitrary_bytes_are_no_frame_or_a_frame_but_never_an_error(data: bytes) -> None:
    Frame.decode(data)
    Frame.decode(data.ljust(FRAME_BYTES, b"\0")[:FRAME_BYTES])


@pytest.mark.parametrize("spin_s", [0.0, 0.05])
def test_a_call_goes_there_and_back(spin_s: float, ends: Ends) -> None:
    judge, runner = ends.doorbell(spin_s)
    control, _other = ends.sockets()

    def serve() -> None:
        assert runner.await_release(1) is CallMode.BACKWARD
        runner.finish(1, 1_500_000, 42, 0b101, kept=2**300 + 2)

    thread = threading.Thread(target=serve)
    thread.start()
    judge.release(1, CallMode.BACKWARD)
    assert judge.await_done(1, time.monotonic() + 5, control.fileno())
    thread.join()
    assert judge.state_outputs() == 2**300 + 2
    report = judge.report()
    assert (report.device_ms, report.peak_bytes, report.present) == (1.5, 42, 0b101)


@pytest.mark.parametrize("spin_s", [0.0, 0.05])
def test_done_is_believed_once_its_ring_is_heard(spin_s: float, ends: Ends) -> None:
    judge, runner = ends.doorbell(spin_s)
    control, _other = ends.sockets()
    runner._page[64:72] = (1).to_bytes(8, "little")  # what another processor may see first
    with pytest.raises(TimeoutError):
        judge.await_done(1, time.monotonic() + 0.1, control.fileno())
    runner._ring()
    assert judge.await_done(1, time.monotonic() + 5, control.fileno())


def test_a_release_is_believed_once_its_ring_is_heard(ends: Ends) -> None:
    judge, runner = ends.doorbell()
    judge._page[0:8] = (1).to_bytes(8, "little")
    released: list[CallMode] = []
    thread = threading.Thread(target=lambda: released.append(runner.await_release(1)))
    thread.start()
    thread.join(0.1)
    assert thread.is_alive()
    judge.release(1, CallMode.BACKWARD)
    thread.join(5)
    assert released == [CallMode.BACKWARD]


@given(
    st.lists(
        st.builds(
            Location,
            st.sampled_from(LocationKind),
            st.integers(0, 2**64 - 1),
            st.lists(st.integers(-(2**63), 2**63 - 1), min_size=8, max_size=8).map(tuple),
            st.binary(min_size=64, max_size=64),
        ),
        max_size=MAX_LOCATIONS,
    )
)
def test_locations_survive_the_way(locations: list[Location]) -> None:
    judge, descriptors = Doorbell.create(0.0)
    runner = Doorbell.join(descriptors, 0.0)
    runner.tell_locations([location.encode() for location in locations])
    assert judge.locations(len(locations)) == locations
    for end in (judge, runner):
        end.close()


def test_tensors_beyond_the_most_that_can_be_told_are_in_the_shared_memory(ends: Ends) -> None:
    judge, _runner = ends.doorbell()
    *_, last = judge.locations(MAX_LOCATIONS + 1)
    assert last == Location(LocationKind.SHARED)


def test_arbitrary_bytes_are_a_location_or_none(ends: Ends) -> None:
    judge, runner = ends.doorbell()
    runner.tell_locations([b"\xff" * len(Location(LocationKind.PRIVATE).encode())])
    assert judge.locations(1) == [Location(LocationKind.ABSENT)]


def test_a_runner_that_never_answers_times_out(ends: Ends) -> None:
    judge, _runner = ends.doorbell()
    control, _other = ends.sockets()
    judge.release(1, CallMode.FORWARD)
    with pytest.raises(TimeoutError):
        judge.await_done(1, time.monotonic() + 0.05, control.fileno())


@pytest.mark.parametrize("spin_s", [0.0, 3600.0])
def test_the_end_of_the_control_socket_ends_the_wait(spin_s: float, ends: Ends) -> None:
    judge, _runner = ends.doorbell(spin_s)
    control, other = ends.sockets()
    other.close()
    assert not judge.await_done(1, time.monotonic() + 5, control.fileno())


def test_a_runner_that_closes_its_doorbell_ends_the_wait(ends: Ends) -> None:
    judge, runner = ends.doorbell()
    control, _other = ends.sockets()
    judge.release(1, CallMode.FORWARD)
    runner.close()
    assert not judge.await_done(1, time.monotonic() + 5, control.fileno())


def test_a_flood_of_rings_blocks_nobody(ends: Ends) -> None:
    judge, runner = ends.doorbell()
    control, _other = ends.sockets()
    for _ in range(10_000):
        runner._ring()
    with pytest.raises(TimeoutError):
        judge.await_done(1, time.monotonic() + 0.2, control.fileno())


def test_done_for_another_call_is_not_done(ends: Ends) -> None:
    judge, runner = ends.doorbell()
    control, _other = ends.sockets()
    runner.finish(7, 1, 1, 0)
    with pytest.raises(TimeoutError):
        judge.await_done(8, time.monotonic() + 0.05, control.fileno())


def test_the_runner_notices_that_the_judge_is_gone(ends: Ends) -> None:
    judge, runner = ends.doorbell()
    judge.close()
    with pytest.raises(ConnectionError):
        runner.await_release(1)


def test_a_message_carries_its_descriptors(ends: Ends) -> None:
    left, right = ends.sockets()
    read, write = os.pipe()
    messages.send(left, {"op": "test", "text": "ä" * 1000}, [write])
    message, descriptors = messages.receive(right)
    assert message["text"] == "ä" * 1000
    os.write(descriptors[0], b"!")
    assert os.read(read, 1) == b"!"
    for descriptor in (read, write, *descriptors):
        os.close(descriptor)


def test_a_message_above_the_limit_is_not_read(ends: Ends) -> None:
    left, right = ends.sockets()
    messages.send(left, {"text": "x" * 1000})
    with pytest.raises(messages.MessageTooLarge):
        messages.receive(right, max_bytes=100)


def test_the_end_of_the_stream_is_told_apart_from_a_message(ends: Ends) -> None:
    left, right = ends.sockets()
    left.close()
    with pytest.raises(messages.ConnectionClosed):
        messages.receive(right)
