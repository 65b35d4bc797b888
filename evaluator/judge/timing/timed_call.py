"""One call of either side: fresh inputs, poisoned outputs, cold cache, release, wait, commitment to the results.

Every timed call goes through the same steps within the clocks, for either side. Every call of a candidate is committed
to, so that it can be compared. There is no phase in which a candidate is timed and not verified.
"""

from __future__ import annotations

import contextlib
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from functools import partial
from typing import Any, Final, Literal

import numpy as np
import torch

from evaluator.config import Limits
from evaluator.dtypes import tensor_on
from evaluator.errors import InfrastructureFault
from evaluator.judge.correctness.commitment import INPUT_BLOCKS, Commitment, Commitments
from evaluator.judge.device.device import Device
from evaluator.judge.errors import Violation
from evaluator.judge.inputs.drawing import InputSource, Variant, make_upstream
from evaluator.judge.link import RunnerGone, RunnerLink, RunnerTimeout, TimedCall
from evaluator.judge.memory_plan import PRECHECK_BYTES
from evaluator.judge.runner_memory import ElementPlaces, RunnerMemory, Unreadable
from evaluator.judge.timing.interference import DeviceProbe, InterferenceMonitor
from evaluator.judge.timing.statistics import median_ms
from evaluator.judge.timing.timeline import Timeline
from evaluator.protocol.control_page import MAX_LOCATIONS, MEMORY_PROBE, CallMode, CallReport, Location
from evaluator.protocol.shared_memory import Block, TensorSpec
from evaluator.protocol.stream_gate import open_gate
from evaluator.sandbox.freezer import CannotBeStopped, Freezer, total_wait_ms

__all__ = ["ANY_OUTPUT", "Calibration", "Calibrations", "CallInputs", "Caller", "Participant"]

ANY_OUTPUT: Final = 2**MAX_LOCATIONS - 1
"""A bit for each output."""
_COMMAND_S: Final = 60.0
_CLOSE_SHARED_S: Final = 10.0
_FIRST_CALLS: Final = 2
_CALIBRATION_CALLS: Final = 3
_DRIFT_SHARE: Final = 0.05
_DRIFT_MS: Final = 0.02
_DRIFT_LESS: Final = 0.5
"""The allowed decrease since calibration, as a share of the allowed increase."""
_DRIFT_PRECHECK_MS: Final = 0.08
_DRIFT_OVERHEAD_MS: Final = 0.1
_MAX_CALIBRATIONS: Final = 3
"""The most rounds of calibration. A baseline near a bound of the release may be on either side of it in turn."""
_MAX_REMAPS: Final = 8
"""The most repeated calls. A side that gives memory back in each call has new allocations, whose handles could be those
of old ones."""
_KEPT_BYTES: Final = 2**30
_MAX_PRECHECKS: Final = 2
_MAPPINGS_OF: Final = 4
"""In one of this many calls, the memory mappings of the results are checked."""
_RAN_S: Final = 0.1
_SHOWN_LAST_BYTES: Final = 2**20
"""A processor could copy away and process inputs of up to this size while the caches are overwritten."""
_KEPT_WARMUP_BYTES: Final = 64 * 2**20
_SHORT_MS: Final = 1.0
"""Calls below this are affected by the processor's work right before."""
_WHILE_BUSY_BYTES: Final = 2**30
"""Inputs up to this size are written within a fraction of the time slice after which a device turns to another
process."""


@dataclass
class Participant:
    """Candidate or baseline: its link, and the processes that are frozen while the other is called.

    ``gate``: its calls wait for it on an asynchronous device, once there is shared memory. ``memory``: the memory of
    its runner, to be read. ``kept``: by mode, the outputs that are the model's own state (bit i, output i), once a
    delivery of such a call has told; only those in ``possible_state``.
    """

    name: Literal["candidate", "baseline"]
    link: RunnerLink
    freezer: Freezer
    memory: RunnerMemory
    gate: Block | None = None
    possible_state: int = ANY_OUTPUT
    kept: dict[CallMode, int] = field(default_factory=dict)

    def can_be_read(self, device: torch.device) -> bool:
        """Whether the judge can read the runner's memory, and write to it where necessary. Tried on the tensor that the
        runner has shown when it was given the shared memory."""
        first = np.zeros(1, np.int64)
        place = ElementPlaces.of(first, (1,), tensor_on(device, first, torch.int64))
        try:
            location, spec = self.link.locations(1)[0], TensorSpec((1,), "int64")
            found = self.memory.read(location, spec, place)
            self.memory.scrub(location, spec)
        except Unreadable:
            return False
        return found.tolist() == [MEMORY_PROBE]

    def close(self) -> None:
        """End the link, upon which a well-behaved runner ends. Its processes are no longer stopped or woken."""
        self.memory.close()
        self.link.close()
        self.freezer.close()

    def stop(self) -> None:
        """Stop all of its processes. Raises ``RunnerTimeout`` where a candidate's cannot be stopped: it has asked too
        much of the kernel, for example more memory than there is. For a baseline, raises ``CannotBeStopped``: the fault
        is ours."""
        self._stop_by(self.freezer.freeze)

    def halt(self) -> None:
        """Stop all of its processes within a clock, as quickly as can be confirmed. Raises as ``stop`` does."""
        self._stop_by(self.freezer.halt)

    def _stop_by(self, stop: Callable[[], None]) -> None:
        try:
            stop()
        except CannotBeStopped as error:
            if self.name == "baseline":
                raise
            raise RunnerTimeout(str(error)) from error

    @contextlib.contextmanager
    def stopped_afterwards(self) -> Iterator[None]:
        """Stop its processes at the end, so that it can neither slow down the other side nor write late. Raises as
        ``stop`` does. After ``RunnerGone`` such errors are ignored, since an ending process cannot always be
        stopped."""
        ignored: tuple[type[Exception], ...] = ()
        try:
            yield
        except RunnerGone:
            ignored = RunnerTimeout, CannotBeStopped
            raise
        finally:
            with contextlib.suppress(*ignored):
                self.stop()

    def open_gate(self, number: int) -> None:
        """Let call ``number`` begin on the device, after the work that the judge has asked of it."""
        if self.gate is not None:
            open_gate(self.gate, number)


@dataclass(frozen=True)
class Calibration:
    """Measurements while only the baseline had the shared memory, in milliseconds.

    ``overhead_ms``: the most time between the runner's clock and the judge's; not used on a CPU. ``precheck_ms``: the
    judge's own last steps on the device before a release; ``None`` where nothing outlives the stopping of processes.
    """

    overhead_ms: float
    baseline_ms: float
    precheck_ms: float | None

    def as_seen(self, now: Calibration) -> Calibration | None:
        """Return the part of this calibration that still holds after calls like ``now``.

        ``None`` where these took longer than the same process could take on an equally idle device. Too long a
        calibrated time would let that much interference go unnoticed. So no value exceeds the present one by much.
        """

        def held(then: float, seen: float, most_ms: float) -> float | None:
            allowed = most_ms + _DRIFT_SHARE * then
            return None if seen - then > allowed else min(then, seen + _DRIFT_LESS * allowed)

        overhead_ms = held(self.overhead_ms, now.overhead_ms, _DRIFT_OVERHEAD_MS)
        baseline_ms = held(self.baseline_ms, now.baseline_ms, _DRIFT_MS)
        precheck_ms = held(self.precheck_ms or 0.0, now.precheck_ms or 0.0, _DRIFT_PRECHECK_MS)
        if overhead_ms is None or baseline_ms is None or precheck_ms is None:
            return None
        return Calibration(overhead_ms, baseline_ms, self.precheck_ms and precheck_ms)


@dataclass(frozen=True)
class Release:
    """The way a call is released. ``while_busy``: while the device is still busy for the judge, for any length of the
    call, except with very large inputs. ``short``: right after another call."""

    while_busy: bool
    short: bool


@dataclass
class Calibrations:
    """The calibration while only the baseline had the shared memory. A later evaluation with the same baseline process
    reuses it, once a check has confirmed it.

    ``by_mode``: calibrations of calls on an idle device. ``releases`` are decided once for all calls, since a
    calibration does not hold for calls that are released otherwise. ``probes``: interference probes of the device
    behind the inputs of a call.
    """

    by_mode: dict[CallMode, Calibration] = field(default_factory=dict)
    releases: dict[CallMode, Release] = field(default_factory=dict)
    probes: dict[CallMode, DeviceProbe] = field(default_factory=dict)


@dataclass
class CallInputs:
    """The tensors for one call, in the judge's own memory: inputs, and the upstream gradients of a backward.

    A candidate's are in shared memory only from a point within the judge's clock until "done". Earlier tensors would
    allow earlier work: the gradient of a linear layer's input needs only the weights and the upstream gradient.
    """

    inputs: list[torch.Tensor]
    upstream: list[torch.Tensor]

    @property
    def blocks(self) -> tuple[tuple[str, list[torch.Tensor]], ...]:
        """The tensors by the block that they are shown in."""
        return (("inputs", self.inputs), ("upstream", self.upstream))

    @property
    def size_bytes(self) -> int:
        return sum(tensor.nbytes for tensor in (*self.inputs, *self.upstream))

    def drop(self) -> None:
        """Release all of these tensors."""
        self.inputs, self.upstream = [], []


InputKind = tuple[Variant, bool]
"""The kind of the inputs of a call, and whether it has a backward."""


@dataclass
class _Drawing:
    """All that decides the tensors of one call; ``kept`` has the tensors themselves, where they are small enough."""

    variant: Variant
    seed: int
    backward: bool
    kept: CallInputs | None = None

    @property
    def kind(self) -> InputKind:
        return self.variant, self.backward


class _NotRepeatable(Exception):
    """The same seed did not make the same inputs."""


class _Remapped(Exception):
    """A call's results were read in an allocation that may have been given back since it was opened."""


@dataclass
class Caller:
    """Calls of one evaluation over its shared blocks.

    ``lean``: candidate and baseline take turns in keeping device memory. ``fault_context``: a context in which the
    faults of a side are attributed to it. ``warmup`` keeps inputs of calls that are not compared. ``recycled`` keeps
    inputs of the latest two calls that had new ones. ``precheck_inputs`` keeps the inputs that prechecks write.
    ``calibrations``: empty, or the calibration of this baseline in an earlier evaluation.
    """

    device: Device
    limits: Limits
    candidate: Participant
    baseline: Participant
    blocks: Mapping[str, Block]
    specs: tuple[TensorSpec, ...]
    source: InputSource
    commitments: Commitments
    lean: bool
    fault_context: Callable[[Participant], contextlib.AbstractContextManager[None]]
    warmup: dict[InputKind, CallInputs]
    recycled: dict[InputKind, list[CallInputs]]
    precheck_inputs: dict[InputKind, CallInputs]
    calibrations: Calibrations
    latest_ms: dict[CallMode, float] = field(default_factory=dict)
    """The device time that the candidate's latest call reported."""
    baseline_ms: dict[CallMode, list[float]] = field(default_factory=dict)
    """The device times that the baseline's calls reported."""
    peak_bytes: Counter[str] = field(default_factory=Counter)
    """The highest peak of each side's allocator in its reports, by the side's name."""
    interference: InterferenceMonitor = field(default_factory=InterferenceMonitor)
    remaps: int = _MAX_REMAPS
    """The number of calls that may still be repeated because an allocation was opened before them."""
    exclusive: bool = False
    """Whether only both sides come to the device: then it has to be idle before each call."""

    def calibrate(self, mode: CallMode) -> None:
        """Measure the time between the two clocks while only the baseline has the shared memory, or confirm an earlier
        calibration."""
        calibrations = self.calibrations
        if self._is_calibrated(mode):
            return
        # A baseline that compiles itself does so in its first call, and may record graphs in the second.
        first = [self._calibration_call(mode, self.limits.build_s) for _ in range(_FIRST_CALLS)]
        if self.device.asynchronous and mode not in calibrations.probes:
            calibrations.probes[mode] = DeviceProbe.typical(
                [self._probe_interference(mode, self._latest(mode)) for _ in range(_CALIBRATION_CALLS)]
            )
        calibrations.by_mode[mode] = self._calibration_of(first[-1:])
        calibrations.releases.pop(mode, None)
        if not self.device.asynchronous:
            # Nothing is compared with an idle machine here: its other programs come and go.
            return
        # The release of a call depends on the baseline's time, and the calibration holds only for calls released this
        # way.
        for _ in range(_MAX_CALIBRATIONS):
            release = self._release_of(mode, calibrations.by_mode[mode].baseline_ms)
            if release == calibrations.releases.get(mode):
                break
            calibrations.releases[mode] = release
            calibrations.by_mode[mode] = self._calibration_of(
                [self._calibration_call(mode) for _ in range(_CALIBRATION_CALLS)]
            )

    def _is_calibrated(self, mode: CallMode) -> bool:
        """Whether there is an earlier calibration, and a call of the baseline confirms it."""
        calibrations = self.calibrations
        if mode not in calibrations.by_mode or not self.device.asynchronous:
            return False
        held = self._held(mode)
        # One probe describes the device for a backward's calls as well.
        if mode is CallMode.FORWARD and not self._probe_interference(mode, self._latest(mode)).resembles(
            calibrations.probes[mode]
        ):
            calibrations.probes.clear()
        if held is None or mode not in calibrations.probes:
            return False
        if (
            held != calibrations.by_mode[mode]
            and self._release_of(mode, held.baseline_ms) != calibrations.releases[mode]
        ):
            return False  # even an unchanged time may be on either side of a bound
        calibrations.by_mode[mode] = held
        return True

    def _held(self, mode: CallMode) -> Calibration | None:
        """Return the part of the earlier calibration that still holds; ``None`` where calls take longer now. The first
        call after a pause may take longer, and a shorter one may be luck. Then another call follows, and of two shorter
        ones the longer counts."""
        calibration = self.calibrations.by_mode[mode]
        first = calibration.as_seen(self._calibration_of([self._calibration_call(mode)]))
        if first == calibration:
            return calibration
        second = calibration.as_seen(self._calibration_of([self._calibration_call(mode)]))
        if first is None or second is None:
            return second
        return Calibration(*map(max, zip(astuple(first), astuple(second), strict=True)))

    def _latest(self, mode: CallMode) -> CallInputs | None:
        """Return the inputs of the baseline's latest calibration call."""
        return self.precheck_inputs.get((Variant.AS_WRITTEN, mode is CallMode.BACKWARD))

    def decide_releases(self) -> None:
        """Without a calibration, decide how calls are released by the baseline's times so far."""
        for mode, latencies_ms in self.baseline_ms.items():
            # The minimum, because there are few times, and a first call is slow.
            self.calibrations.releases.setdefault(mode, self._release_of(mode, min(latencies_ms)))

    def _release_of(self, mode: CallMode, baseline_ms: float) -> Release:
        shown = INPUT_BLOCKS if mode is CallMode.BACKWARD else INPUT_BLOCKS[:1]
        shown_bytes = sum(self.blocks[name].layout.size_bytes for name in shown)
        return Release(while_busy=shown_bytes <= _WHILE_BUSY_BYTES, short=baseline_ms < _SHORT_MS)

    def _calibration_call(self, mode: CallMode, more_s: float = 0.0) -> TimedCall:
        timeout_s = self.limits.call_s + more_s
        return self.call(self.baseline, mode, Variant.AS_WRITTEN, timeout_s, spot_check=True, compared=False)[0]

    def _calibration_of(self, calls: Sequence[TimedCall]) -> Calibration:
        return Calibration(
            overhead_ms=max(call.outer_ms - call.report.device_ms for call in calls),
            baseline_ms=median_ms([call.report.device_ms for call in calls]),
            precheck_ms=median_ms([call.precheck_ms for call in calls]) if self.device.asynchronous else None,
        )

    def is_short(self, mode: CallMode) -> bool:
        """Whether the processor's work right before affects the time of a call."""
        return mode in self.calibrations.releases and self.calibrations.releases[mode].short

    def _releases_while_busy(self, mode: CallMode) -> bool:
        """Whether a call with cold caches is released while the device is still busy for the judge."""
        return mode in self.calibrations.releases and self.calibrations.releases[mode].while_busy

    def call(
        self,
        side: Participant,
        mode: CallMode,
        variant: Variant,
        timeout_s: float,
        *,
        spot_check: bool = False,
        cold: bool = True,
        compared: bool = True,
    ) -> tuple[TimedCall, Commitment]:
        """Make one call of either side; return it and the judge's commitment. With ``spot_check``, row sampling is
        enough: only secret rows of large tensors are kept. Without ``compared``, it is a call of the baseline that is
        not compared.

        A short call has another one right before it, a candidate's on other inputs. So a process that was just woken
        has its code in the processor's caches. Without ``cold``, every call has one before it, on other inputs for both
        sides. The device's caches are not flushed then, so weights and inputs may be in them, and the device waits for
        the requests of the call.

        Raises ``Violation``, ``RunnerFailed``, ``RunnerGone`` and ``RunnerTimeout``.
        """
        # With a lean plan, the driver clears the memory that a side gives back, in the background and as fast as the
        # device can. Work that follows soon is up to 15 % slower, and row sampling leaves no time for the clearing to
        # end.
        spot_check = (
            spot_check and not self.lean and self.commitments.may_spot_check(gradients=mode is CallMode.BACKWARD)
        )
        # Where work can remain on a device, the judge's last requests decide the device's state for the next call. Then
        # all of these steps are done, needed or not.
        compared = compared or self.device.asynchronous
        self._take_memory(side, self.baseline if side is self.candidate else self.candidate)
        once = partial(
            self._call_once, side, mode, variant, timeout_s, spot_check=spot_check, cold=cold, compared=compared
        )
        with self.fault_context(side):
            while True:
                try:
                    call, commitment = once()
                    break
                except _NotRepeatable:
                    # get_inputs has a source of randomness other than torch: from now on its inputs are kept.
                    self.source.repeatable = False
                except _Remapped:
                    continue
        self.peak_bytes[side.name] = max(self.peak_bytes[side.name], call.report.peak_bytes)
        if side is self.baseline:
            self.baseline_ms.setdefault(mode, []).append(call.report.device_ms)
        else:
            self.latest_ms[mode] = call.report.device_ms
        return call, commitment

    def has(self, side: Participant, commitment: Commitment) -> bool:
        """Whether ``side`` really has the wrong results that were taken from its latest call. An allocation that may
        have been given back before the reading is opened anew. All processes stay stopped: a detected candidate that
        knew of it could act on it."""
        if not commitment.doubtful or not self.remaps or self.commitments.is_as_taken(commitment, side.memory):
            return True
        self.remaps -= 1
        side.memory.close()  # an allocation that was opened for this would not count as open before
        return False

    def release_memory(self, side: Participant) -> None:
        """Have a side's allocator give back unused memory."""
        side.memory.close()  # an allocation that is open here stays in use
        self._command(side, {"op": "release_memory"})

    def _command(self, side: Participant, message: dict[str, Any]) -> None:
        """Have a command carried out between two calls."""
        with self.fault_context(side), self._awake(side):
            side.link.command(message, _COMMAND_S)

    def load_weights(self, side: Participant) -> None:
        """Have the reference's weights loaded from the shared memory. Raises as ``close_shared`` does."""
        with self._awake(side):
            side.link.command({"op": "load_weights"}, _COMMAND_S)

    def take_weights(self, side: Participant, indexes: Sequence[int]) -> None:
        """Have the shared weights of these ``indexes`` taken by their counterparts. Raises as ``close_shared`` does."""
        with self._awake(side):
            side.link.command({"op": "take_weights", "indexes": [*indexes]}, _COMMAND_S)

    def step_weights(self, side: Participant, indexes: Sequence[int]) -> None:
        """Have the counterparts of these weights take the shared values, in place, as in a step of training. Raises as
        ``close_shared`` does."""
        with self._awake(side):
            side.link.command({"op": "step_weights", "indexes": [*indexes]}, _COMMAND_S)

    @contextlib.contextmanager
    def interleaved(self, side: Participant, variant: Variant) -> Iterator[None]:
        """Have the model of ``side`` called with other inputs between each forward and its backward meanwhile."""
        self._write_inputs(self._make(_Drawing(variant, secrets.randbits(63), backward=True)))
        self.device.synchronize()
        self._command(side, {"op": "interleave"})
        yield
        side.memory.close()  # an allocation that is open here stays in use
        self._command(side, {"op": "end_interleave"})

    def deliver_in_call(self, side: Participant) -> None:
        """Have results copied to the shared memory within the call, because the runner's memory cannot be read."""
        self._command(side, {"op": "deliver_in_call"})

    def close_shared(self, side: Participant) -> int:
        """Have the shared memory closed, after the last call. Return the device memory that the side reports to hold
        then, in bytes. Raises ``RunnerFailed``, ``RunnerGone`` and ``RunnerTimeout`` for either side, since the
        evaluation is over."""
        side.memory.close()
        with self._awake(side):
            side.link.close_shared(_CLOSE_SHARED_S)
            return side.link.call(CallMode.PREPARE, _CLOSE_SHARED_S).report.peak_bytes

    def _call_once(
        self,
        side: Participant,
        mode: CallMode,
        variant: Variant,
        timeout_s: float,
        *,
        spot_check: bool,
        cold: bool,
        compared: bool,
    ) -> tuple[TimedCall, Commitment]:
        """Make one call of either side; return it with its commitment, the later evidence of its inputs and results.

        Where work can remain on a device, the steps are the same for both sides while the candidate is timed, needed or
        not. Leaving the fingerprints out for the baseline alone made it 8 % slower on an H200. There are two
        differences: the inputs that prechecks write, and whether the call before a short one has the same inputs. On
        other devices, only the steps within the judge's clock are the same.

        The side's processes run from shortly before the release until they are done, or have delivered where they must.
        Otherwise they are stopped.
        """
        timeline = Timeline()
        delivered = ["outputs"]
        if mode is CallMode.BACKWARD:
            delivered += ["input_gradients", "weight_gradients"]
        drawing = _Drawing(variant, secrets.randbits(63), backward=mode is CallMode.BACKWARD)
        shown = INPUT_BLOCKS if drawing.backward else INPUT_BLOCKS[:1]
        planted = self.source.planted_rows(variant, drawing.seed)
        commitment = self.commitments.prepare([*shown, *delivered], spot_check=spot_check, planted=planted)
        self.commitments.prepare_done(commitment, delivered)
        results = sum(len(self.blocks[name].tensors) for name in delivered)
        locations: list[Location] = []
        needs_warmup = self.is_short(mode) or not cold
        # With warm caches, a side that has had the same inputs before would find more of its weights there.
        same_again = side is self.baseline and self.device.asynchronous and cold
        warmup = self._make_warmup(drawing) if needs_warmup and not same_again else None
        given = self._give(drawing, commitment, spot_check=spot_check) if compared else self._give_recycled(drawing)
        if needs_warmup and same_again:
            # Left-behind work could wait for other inputs in between, and resume at their sight.
            warmup = replace(given)
        for name in delivered:
            # The pattern is unpredictable, so an unwritten element is never right by chance.
            self._poison(name)
        # A candidate that is not timed yet does not need an idle device, nor empty caches where emptying takes long.
        timed = self.exclusive or side is self.baseline
        if timed and self.device.asynchronous:
            self.device.synchronize()
        timeline.note("drawing")
        precheck_ms = self._await_idle(mode, self._precheck_inputs(side, drawing, given)) if timed else 0.0
        flushes = cold and (timed or self.device.asynchronous)
        timeline.note("preludes")

        def publish_inputs(number: int = 0) -> None:
            self._write_inputs(given)
            if flushes:
                self.device.flush_cache()
            side.open_gate(number)
            self.device.synchronize()

        def enqueue_inputs(number: int) -> None:
            # The device is busy for longer than the runner takes to request its first kernels, which then follow each
            # other as fast as they can. Otherwise chance decides whether the device has turned to the runner by then,
            # and calls of microseconds take three times as long when it has. The gate opens last. Copies, for which a
            # device need not turn to the runner, would otherwise fetch inputs that are not there yet.
            self.device.occupy(backward=mode is CallMode.BACKWARD)
            last = given.size_bytes <= _SHOWN_LAST_BYTES
            if last and flushes:
                self.device.overwrite_cache()
            self._write_inputs(given)
            if flushes and not last:
                self.device.overwrite_cache()
            side.open_gate(number)

        def withdraw_inputs() -> None:
            if not self.device.asynchronous:
                # Otherwise a thread would go on during the following steps, which take longer with larger inputs.
                side.halt()
            # Results that are not computed by now can never be: the inputs are gone.
            self.commitments.pick(commitment, shown)
            for name in shown:
                self._poison(name)
            # The time after this is not measured, so all results are read before the clock stops, in their own place.
            locations.extend(side.link.locations(results))
            with self._memory_context(side):
                self.commitments.read_done(commitment, delivered, locations, side.memory)
            self.device.synchronize()

        with side.stopped_afterwards():
            if warmup is not None:
                self._write_inputs(warmup)
                self.device.synchronize()
                self._wake(side)
                side.link.call(mode, timeout_s, before=side.open_gate)
                if not self.device.asynchronous:
                    side.stop()
                    if cold:  # on the warm track the next call is to find the caches as this one leaves them
                        self._scrub(side, mode, delivered)
                del warmup
                timeline.note("the call before")
            peak_bytes = 0
            if self.device.asynchronous:
                # Waking takes a millisecond, so it comes first; the inputs come within the clock. On a device that
                # works for one process at a time, an early start while they are written gains nothing.
                self._wake(side)
                awake = CallMode.PREPARE if cold else CallMode.PREPARE_WARM
                peak_bytes = side.link.call(awake, self.limits.call_s).report.peak_bytes
                timeline.note("waking")
                # The warm track includes the time of requesting the kernels, as in a user's own loop.
                before = enqueue_inputs if cold and self._releases_while_busy(mode) else publish_inputs
                call = side.link.call(mode, timeout_s, before=before, on_done=withdraw_inputs)
            else:
                # Other processors could begin while the inputs are written, so that comes before the processes are
                # woken.
                publish_inputs()
                waits = side.freezer.waits()
                call = side.link.call(mode, timeout_s, wake=lambda: self._wake(side), on_done=withdraw_inputs)
                call = replace(call, waited_ms=total_wait_ms(waits, side.freezer.waits()))
                # The check takes half a millisecond, and a candidate that gains by such mappings has to use them in
                # most calls.
                if secrets.randbelow(_MAPPINGS_OF) == 0:
                    repeated = self.commitments.repeated(commitment, side.memory)
                    if repeated:
                        raise self._fault_of(side, f"{repeated} lies in memory that is mapped there several times")
            timeline.note("the call")
            if drawing.kept is None:
                given.drop()
            present = call.report.present
            # A candidate's results are delivered as long as it is not timed: that tells which of them are its state.
            # Only a delivery reports a wrong kind of result for a tensor without a location.
            takes = timed and mode in side.kept and self.commitments.are_there(delivered, locations, present)
            if not takes:
                self._have_delivered(side, mode, commitment, delivered)
        if takes:
            with self._memory_context(side):
                if compared:
                    self.commitments.take(commitment, delivered, side.memory)
                    if not spot_check:
                        self.commitments.pick(commitment, delivered)
                self.commitments.scrub(delivered, locations, side.memory, side.kept[mode])
            self.device.synchronize()
            commitment.doubtful = side.memory.was_open
        timeline.note("results")
        self._require_done(side, commitment, call.report, delivered)
        if compared:
            self._commit_to(delivered, commitment, drawing, spot_check=spot_check)
        timeline.note("commitment")
        report = replace(call.report, peak_bytes=peak_bytes)
        return replace(call, report=report, precheck_ms=precheck_ms, steps_ms=timeline.ms), commitment

    def _have_delivered(self, side: Participant, mode: CallMode, commitment: Commitment, names: Sequence[str]) -> None:
        """Have the runner copy its results into the shared memory."""

        def on_done() -> None:
            self.commitments.pick(commitment, names)
            self.commitments.pick_delivered(commitment)
            self.device.synchronize()

        if not self.device.asynchronous:
            self._wake(side)  # it was stopped within the clock
        side.link.call(CallMode.DELIVER, self.limits.call_s, on_done=on_done)
        side.kept[mode] = side.link.state_outputs() & side.possible_state

    def _scrub(self, side: Participant, mode: CallMode, names: Sequence[str]) -> None:
        """Have the results of a call that is not compared spoiled, as those of other calls are."""
        if mode in side.kept:
            locations = side.link.locations(sum(len(self.blocks[name].tensors) for name in names))
            with self._memory_context(side):
                self.commitments.scrub(names, locations, side.memory, side.kept[mode])

    @contextlib.contextmanager
    def _memory_context(self, side: Participant) -> Iterator[None]:
        """Attribute it to a side when its memory cannot be used as reported."""
        try:
            yield
        except Unreadable as error:
            raise self._fault_of(side, str(error)) from None

    def _require_done(
        self, side: Participant, commitment: Commitment, report: CallReport, delivered: Sequence[str]
    ) -> None:
        """Compare the delivered values with those at "done". Raises ``_Remapped`` where these were read in memory that
        may have been another tensor's before, and otherwise as ``_fault_of`` does."""
        was_open = side.memory.was_open
        side.memory.end_call()
        late = self.commitments.late(commitment, report, delivered)
        if not late:
            return
        if was_open and self.remaps:
            self.remaps -= 1
            side.memory.close()
            raise _Remapped
        raise self._fault_of(side, f"{late} is not as it was when the {side.name} had said that it was done")

    def _fault_of(self, side: Participant, message: str) -> Exception:
        """Return the error for a broken rule: ``Violation`` for a candidate, ``InfrastructureFault`` for a baseline."""
        return Violation(message) if side is self.candidate else InfrastructureFault(message)

    def _give(self, drawing: _Drawing, commitment: Commitment, *, spot_check: bool) -> CallInputs:
        """Draw the tensors for a call, and commit to them."""
        given = self._draw(drawing)
        kept = not self.source.repeatable or given.size_bytes <= _KEPT_BYTES
        if kept and not spot_check:
            drawing.kept = given
        self.commitments.commit(commitment, dict(given.blocks))
        return given

    def _give_recycled(self, drawing: _Drawing) -> CallInputs:
        """Return tensors of an earlier call of this kind, for the baseline, from which nothing must be hidden. Each
        serves only once, since a candidate does not get the same ones again either. Calls before a candidate's are
        given new ones by turns."""
        again = self.recycled.get(drawing.kind)
        return again.pop() if again else self._draw(drawing)

    def _draw(self, drawing: _Drawing) -> CallInputs:
        """Draw tensors that no call was given before."""
        given = self._make(drawing)
        # These copies cannot be changed by a runner: small ones serve once more.
        if not self.device.asynchronous and given.size_bytes <= _KEPT_WARMUP_BYTES:
            # One kind at a time, and two calls of it: of pairs A B B A, both calls of B find one of A's.
            latest = self.recycled.get(drawing.kind, [])[-1:]
            self.recycled.clear()
            self.recycled[drawing.kind] = [*latest, replace(given)]
        return given

    def _commit_to(
        self, delivered: Sequence[str], commitment: Commitment, drawing: _Drawing, *, spot_check: bool
    ) -> None:
        """Commit to the delivered results of a call. Where the commitment needs the inputs, they are put in place again
        first."""
        # With row sampling, everything that is compared has private copies.
        if not spot_check and not commitment.has_copies(INPUT_BLOCKS):
            self._restore(commitment, drawing)
        self.commitments.commit(commitment, {name: self.blocks[name].tensors for name in delivered})
        self.device.synchronize()

    def _write_inputs(self, given: CallInputs) -> None:
        """Write the tensors of a call to the shared memory."""
        for name, tensors in given.blocks:
            if tensors:
                for target, tensor in zip(self.blocks[name].tensors, tensors, strict=True):
                    target.copy_(tensor)

    def _poison(self, name: str) -> None:
        # All 64 bits are random, including the sign. If one were never set, inputs could be recognised by it.
        self.blocks[name].memory.view(torch.int64).fill_(secrets.randbits(64) - 2**63)

    def _precheck_inputs(self, side: Participant, drawing: _Drawing, given: CallInputs) -> CallInputs | None:
        """Return the inputs that the prechecks of a call write; ``None`` for too large ones, and where there are no
        prechecks.

        They are tensors of the call's own kind. Work could wait for a value that these have, and a pattern has not, and
        would begin unseen with the call.

        The baseline's prechecks write the ``given`` inputs of the call. Writing them once more changes nothing, so work
        that waits for a change does not begin then. A candidate's prechecks write the baseline's last inputs: its
        left-behind work could make use of its own.
        """
        if not self.device.asynchronous:
            return None
        if given.size_bytes > PRECHECK_BYTES:
            self.precheck_inputs.clear()  # inputs of a forward, which are less
            return None
        if side is self.baseline or drawing.kind not in self.precheck_inputs:
            self.precheck_inputs.clear()  # one kind at a time
            self.precheck_inputs[drawing.kind] = replace(given) if side is self.baseline else self._other(drawing)
        return self.precheck_inputs[drawing.kind]

    def _write(self, mode: CallMode, written: CallInputs | None) -> None:
        """Write to all input blocks of a call of ``mode``."""
        if written is not None:
            self._write_inputs(written)
            return
        for name in INPUT_BLOCKS if mode is CallMode.BACKWARD else INPUT_BLOCKS[:1]:
            self._poison(name)

    def _await_idle(self, mode: CallMode, written: CallInputs | None) -> float:
        """With every process stopped, write to all input blocks of a call, as the call will, and work for a moment.

        Returns the time of the last precheck, in milliseconds. Prechecks are the same in each call. So work that the
        candidate has left on the device, or set up to begin at a write, shows as a delay. Without ``written`` a pattern
        is written.
        """
        if not self.device.asynchronous:
            return 0.0
        calm_ms = self.calibrations.by_mode[mode].precheck_ms if mode in self.calibrations.by_mode else None
        while True:
            for _ in range(1 + secrets.randbelow(_MAX_PRECHECKS)):
                self.device.synchronize()
                begin = time.perf_counter()
                self._write(mode, written)
                self.device.flush_cache()
                self.device.probe()
                precheck_ms = 1000 * (time.perf_counter() - begin)
                is_calm = (
                    not self.exclusive
                    or calm_ms is None
                    or self.interference.in_time(precheck_ms, calm_ms)
                    or self.interference.undisturbed(
                        self._probe_interference(mode, written), self.calibrations.probes[mode]
                    )
                )
            if is_calm:
                return precheck_ms

    def _probe_interference(self, mode: CallMode, written: CallInputs | None) -> DeviceProbe:
        """Probe the device for interference, behind the write of a precheck and without it."""
        return DeviceProbe(
            self.device.interference_probe_ms(partial(self._write, mode, written)),
            self.device.interference_probe_ms(lambda: None),
        )

    def _restore(self, commitment: Commitment, drawing: _Drawing) -> None:
        """Write the inputs of the runner once more, for the comparison. Raises ``_NotRepeatable``."""
        if drawing.kept is not None:
            self._write_inputs(drawing.kept)
            return
        again = self._make(drawing)
        self._write_inputs(again)
        made = Commitment()
        self.commitments.commit(made, {"inputs": again.inputs})
        if not commitment.has_content(made):
            raise _NotRepeatable

    def _make(self, drawing: _Drawing) -> CallInputs:
        inputs = self.source.make(self.specs, drawing.variant, drawing.seed, avoid_zero=drawing.backward)
        specs = self.blocks["upstream"].layout.tensors if drawing.backward else ()
        weights = self.blocks["weight_gradients"].layout.tensors
        upstream = make_upstream(specs, weights, drawing.seed, self.device.torch_device)
        return CallInputs(inputs, upstream)

    def _other(self, drawing: _Drawing) -> CallInputs:
        """Draw other tensors of the same kind."""
        return self._make(replace(drawing, seed=secrets.randbits(63)))

    def _make_warmup(self, drawing: _Drawing) -> CallInputs:
        """Return tensors of the same kind for a call that is not compared; small ones are the same each time."""
        if drawing.kind in self.warmup:
            return self.warmup[drawing.kind]
        made = self._other(drawing)
        if made.size_bytes <= _KEPT_WARMUP_BYTES:
            self.warmup.clear()  # one kind at a time
            self.warmup[drawing.kind] = made
        return made

    def _take_memory(self, side: Participant, other: Participant) -> None:
        """With a lean plan, have ``other`` give its allocator's memory back, and ``side`` take its own."""
        if self.lean:
            # A side that has not been shown the shared memory cannot be asked, and holds no memory to give back.
            if other.link.shares:
                self.release_memory(other)
            if side.link.shares:
                self._command(side, {"op": "reserve_memory"})

    @contextlib.contextmanager
    def _awake(self, side: Participant) -> Iterator[None]:
        """Let the processes of ``side`` run, and stop them again at the end."""
        self._wake(side)
        with side.stopped_afterwards():
            yield

    def _wake(self, side: Participant) -> None:
        side.freezer.thaw()
        if side.freezer.ran_while_stopped_s > _RAN_S:
            raise self._fault_of(
                side,
                f"{side.name}'s processes used {side.freezer.ran_while_stopped_s:.2f} s of processor time while "
                "they were stopped: they wake each other",
            )
