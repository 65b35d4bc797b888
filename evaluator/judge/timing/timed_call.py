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
from evaluator.judge.correctness.commitment import GIVEN, Commitment, Commitments
from evaluator.judge.device.device import Device
from evaluator.judge.errors import Violation
from evaluator.judge.inputs.drawing import InputSource, Variant, make_upstream
from evaluator.judge.link import RunnerGone, RunnerLink, RunnerTimeout, TimedCall
from evaluator.judge.memory_plan import PRELUDE_BYTES
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
_LET_GO_S: Final = 10.0
_FIRST_CALLS: Final = 2
_CALM_CALLS: Final = 3
_AS_LEARNT_SHARE: Final = 0.05
_AS_LEARNT_MS: Final = 0.02
_AS_LEARNT_LESS: Final = 0.5
"""The allowed decrease since calibration, as a share of the allowed increase."""
_AS_LEARNT_PRELUDE_MS: Final = 0.08
_AS_LEARNT_OVERHEAD_MS: Final = 0.1
_MOST_LEARNED: Final = 3
"""The most rounds of calibration. A baseline near a bound of the release may be on either side of it in turn."""
_MOST_REMAPS: Final = 8
"""The most repeated calls. A side that gives memory back in each call has new allocations, whose handles could be those
of old ones."""
_KEPT_BYTES: Final = 2**30
_MOST_PRELUDES: Final = 2
_MAPPINGS_OF: Final = 4
"""In one of this many calls, the memory mappings of the results are checked."""
_RAN_S: Final = 0.1
_SHOWN_LAST_BYTES: Final = 2**20
"""A processor could copy away and process inputs of up to this size while the caches are overwritten."""
_WARMING_KEPT_BYTES: Final = 64 * 2**20
_SHORT_MS: Final = 1.0
"""Calls below this are affected by the processor's work right before."""
_SOON_BYTES: Final = 2**30
"""Inputs up to this size are written within a fraction of the time slice after which a device turns to another
process."""


@dataclass
class Participant:
    """Candidate or baseline: its link, and the processes that are frozen while the other is called.

    ``gate``: its calls wait for it on a device that outlives processes, once there is shared memory. ``memory``: the
    memory of its runner, to be read. ``kept``: by mode, the outputs that are the model's own state (bit i, output i),
    once a delivery of such a call has told; only those that it ``may_keep``.
    """

    name: Literal["candidate", "baseline"]
    link: RunnerLink
    enclosure: Freezer
    memory: RunnerMemory
    gate: Block | None = None
    may_keep: int = ANY_OUTPUT
    kept: dict[CallMode, int] = field(default_factory=dict)

    def can_be_read(self, device: torch.device) -> bool:
        """Whether the judge can read the runner's memory, and write to it where necessary. Tried on the tensor that the
        runner has shown when it was given the shared memory."""
        first = np.zeros(1, np.int64)
        place = ElementPlaces.of(first, (1,), tensor_on(device, first, torch.int64))
        try:
            location, spec = self.link.locations(1)[0], TensorSpec((1,), "int64")
            found = self.memory.read(location, spec, place)
            self.memory.spoil(location, spec)
        except Unreadable:
            return False
        return found.tolist() == [MEMORY_PROBE]

    def close(self) -> None:
        """End the link, upon which a well-behaved runner ends. Its processes are no longer stopped or woken."""
        self.memory.close()
        self.link.close()
        self.enclosure.close()

    def stop(self) -> None:
        """Stop all of its processes. Raises ``RunnerTimeout`` where a candidate's cannot be stopped: it has asked too
        much of the kernel, for example more memory than there is. For a baseline, raises ``CannotBeStopped``: the fault
        is ours."""
        self._stop_by(self.enclosure.freeze)

    def halt(self) -> None:
        """Stop all of its processes within a clock, as quickly as can be confirmed. Raises as ``stop`` does."""
        self._stop_by(self.enclosure.halt)

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

    ``overhead_ms``: the most time between the runner's clock and the judge's; not used on a CPU. ``prelude_ms``: the
    judge's own last steps on the device before a release; ``None`` where nothing outlives the stopping of processes.
    """

    overhead_ms: float
    baseline_ms: float
    prelude_ms: float | None

    def as_seen(self, now: Calibration) -> Calibration | None:
        """Return the part of this calibration that still holds after calls like ``now``.

        ``None`` where these took longer than the same process could take on an equally idle device. Too long a
        calibrated time would let that much interference go unnoticed. So no value exceeds the present one by much.
        """

        def held(then: float, seen: float, most_ms: float) -> float | None:
            allowed = most_ms + _AS_LEARNT_SHARE * then
            return None if seen - then > allowed else min(then, seen + _AS_LEARNT_LESS * allowed)

        overhead_ms = held(self.overhead_ms, now.overhead_ms, _AS_LEARNT_OVERHEAD_MS)
        baseline_ms = held(self.baseline_ms, now.baseline_ms, _AS_LEARNT_MS)
        prelude_ms = held(self.prelude_ms or 0.0, now.prelude_ms or 0.0, _AS_LEARNT_PRELUDE_MS)
        if overhead_ms is None or baseline_ms is None or prelude_ms is None:
            return None
        return Calibration(overhead_ms, baseline_ms, self.prelude_ms and prelude_ms)


@dataclass(frozen=True)
class Release:
    """The way a call is released. ``soon``: while the device is still busy for the judge, for any length of the call,
    except with very large inputs. ``short``: right after another call."""

    soon: bool
    short: bool


@dataclass
class Calibrations:
    """The calibration while only the baseline had the shared memory. A later evaluation with the same baseline process
    reuses it, once a check has confirmed it.

    ``calm``: calibrations of calls on an idle device. ``releases`` are decided once for all calls, since a calibration
    does not hold for calls that are released otherwise. ``looks``: interference probes of the device behind the inputs
    of a call.
    """

    calm: dict[CallMode, Calibration] = field(default_factory=dict)
    releases: dict[CallMode, Release] = field(default_factory=dict)
    looks: dict[CallMode, DeviceProbe] = field(default_factory=dict)


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

    ``lean``: candidate and baseline take turns in keeping device memory. ``blamed``: a context in which the faults of a
    side are attributed to it. ``warming`` keeps inputs of calls that are not compared. ``spent`` keeps inputs of the
    latest two calls that had new ones. ``prelude_inputs`` keeps the inputs that preludes write. ``learnt``: empty, or
    the calibration of this baseline in an earlier evaluation.
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
    blamed: Callable[[Participant], contextlib.AbstractContextManager[None]]
    warming: dict[InputKind, CallInputs]
    spent: dict[InputKind, list[CallInputs]]
    prelude_inputs: dict[InputKind, CallInputs]
    learnt: Calibrations
    latest_ms: dict[CallMode, float] = field(default_factory=dict)
    """The device time that the candidate's latest call reported."""
    baseline_ms: dict[CallMode, list[float]] = field(default_factory=dict)
    """The device times that the baseline's calls reported."""
    peak_bytes: Counter[str] = field(default_factory=Counter)
    """The highest peak of each side's allocator in its reports, by the side's name."""
    calmness: InterferenceMonitor = field(default_factory=InterferenceMonitor)
    remaps: int = _MOST_REMAPS
    """The number of calls that may still be repeated because an allocation was opened before them."""
    alone: bool = False
    """Whether only both sides come to the device: then it has to be idle before each call."""

    def calibrate(self, mode: CallMode) -> None:
        """Measure the time between the two clocks while only the baseline has the shared memory, or confirm an earlier
        calibration."""
        learnt = self.learnt
        if self._is_as_learnt(mode):
            return
        # A baseline that compiles itself does so in its first call, and may record graphs in the second.
        first = [self._calm_call(mode, self.limits.build_s) for _ in range(_FIRST_CALLS)]
        if self.device.outlives_processes and mode not in learnt.looks:
            learnt.looks[mode] = DeviceProbe.typical([self._look(mode, self._latest(mode)) for _ in range(_CALM_CALLS)])
        learnt.calm[mode] = self._calm_of(first[-1:])
        learnt.releases.pop(mode, None)
        if not self.device.outlives_processes:
            # Nothing is compared with an idle machine here: its other programs come and go.
            return
        # The release of a call depends on the baseline's time, and the calibration holds only for calls released this
        # way.
        for _ in range(_MOST_LEARNED):
            release = self._release_of(mode, learnt.calm[mode].baseline_ms)
            if release == learnt.releases.get(mode):
                break
            learnt.releases[mode] = release
            learnt.calm[mode] = self._calm_of([self._calm_call(mode) for _ in range(_CALM_CALLS)])

    def _is_as_learnt(self, mode: CallMode) -> bool:
        """Whether there is an earlier calibration, and a call of the baseline confirms it."""
        learnt = self.learnt
        if mode not in learnt.calm or not self.device.outlives_processes:
            return False
        held = self._held(mode)
        # One probe describes the device for a backward's calls as well.
        if mode is CallMode.FORWARD and not self._look(mode, self._latest(mode)).resembles(learnt.looks[mode]):
            learnt.looks.clear()
        if held is None or mode not in learnt.looks:
            return False
        if held != learnt.calm[mode] and self._release_of(mode, held.baseline_ms) != learnt.releases[mode]:
            return False  # even an unchanged time may be on either side of a bound
        learnt.calm[mode] = held
        return True

    def _held(self, mode: CallMode) -> Calibration | None:
        """Return the part of the earlier calibration that still holds; ``None`` where calls take longer now. The first
        call after a pause may take longer, and a shorter one may be luck. Then another call follows, and of two shorter
        ones the longer counts."""
        learnt = self.learnt.calm[mode]
        first = learnt.as_seen(self._calm_of([self._calm_call(mode)]))
        if first == learnt:
            return learnt
        second = learnt.as_seen(self._calm_of([self._calm_call(mode)]))
        if first is None or second is None:
            return second
        return Calibration(*map(max, zip(astuple(first), astuple(second), strict=True)))

    def _latest(self, mode: CallMode) -> CallInputs | None:
        """Return the inputs of the baseline's latest calibration call."""
        return self.prelude_inputs.get((Variant.AS_WRITTEN, mode is CallMode.BACKWARD))

    def decide_releases(self) -> None:
        """Without a calibration, decide how calls are released by the baseline's times so far."""
        for mode, latencies_ms in self.baseline_ms.items():
            # The minimum, because there are few times, and a first call is slow.
            self.learnt.releases.setdefault(mode, self._release_of(mode, min(latencies_ms)))

    def _release_of(self, mode: CallMode, baseline_ms: float) -> Release:
        shown = GIVEN if mode is CallMode.BACKWARD else GIVEN[:1]
        shown_bytes = sum(self.blocks[name].layout.size_bytes for name in shown)
        return Release(soon=shown_bytes <= _SOON_BYTES, short=baseline_ms < _SHORT_MS)

    def _calm_call(self, mode: CallMode, more_s: float = 0.0) -> TimedCall:
        timeout_s = self.limits.call_s + more_s
        return self.call(self.baseline, mode, Variant.AS_WRITTEN, timeout_s, glance=True, compared=False)[0]

    def _calm_of(self, calls: Sequence[TimedCall]) -> Calibration:
        return Calibration(
            overhead_ms=max(call.outer_ms - call.report.device_ms for call in calls),
            baseline_ms=median_ms([call.report.device_ms for call in calls]),
            prelude_ms=median_ms([call.prelude_ms for call in calls]) if self.device.outlives_processes else None,
        )

    def is_short(self, mode: CallMode) -> bool:
        """Whether the processor's work right before affects the time of a call."""
        return mode in self.learnt.releases and self.learnt.releases[mode].short

    def _is_soon(self, mode: CallMode) -> bool:
        """Whether a call with cold caches is released while the device is still busy for the judge."""
        return mode in self.learnt.releases and self.learnt.releases[mode].soon

    def call(
        self,
        side: Participant,
        mode: CallMode,
        variant: Variant,
        timeout_s: float,
        *,
        glance: bool = False,
        cold: bool = True,
        compared: bool = True,
    ) -> tuple[TimedCall, Commitment]:
        """Make one call of either side; return it and the judge's commitment. With ``glance``, row sampling is enough:
        only secret rows of large tensors are kept. Without ``compared``, it is a call of the baseline that is not
        compared.

        A short call has another one right before it, a candidate's on other inputs. So a process that was just woken
        has its code in the processor's caches. Without ``cold``, every call has one before it, on other inputs for both
        sides. The device's caches are not flushed then, so weights and inputs may be in them, and the device waits for
        the requests of the call.

        Raises ``Violation``, ``RunnerFailed``, ``RunnerGone`` and ``RunnerTimeout``.
        """
        # With a lean plan, the driver clears the memory that a side gives back, in the background and as fast as the
        # device can. Work that follows soon is up to 15 % slower, and row sampling leaves no time for the clearing to
        # end.
        glance = glance and not self.lean and self.commitments.may_glance(gradients=mode is CallMode.BACKWARD)
        # Where work can remain on a device, the judge's last requests decide the device's state for the next call. Then
        # all of these steps are done, needed or not.
        compared = compared or self.device.outlives_processes
        self._take_memory(side, self.baseline if side is self.candidate else self.candidate)
        once = partial(self._call_once, side, mode, variant, timeout_s, glance=glance, cold=cold, compared=compared)
        with self.blamed(side):
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
        with self.blamed(side), self._awake(side):
            side.link.command(message, _COMMAND_S)

    def load_weights(self, side: Participant) -> None:
        """Have the reference's weights loaded from the shared memory. Raises as ``let_go`` does."""
        with self._awake(side):
            side.link.command({"op": "load_weights"}, _COMMAND_S)

    def take_weights(self, side: Participant, indexes: Sequence[int]) -> None:
        """Have the shared weights of these ``indexes`` taken by their counterparts. Raises as ``let_go`` does."""
        with self._awake(side):
            side.link.command({"op": "take_weights", "indexes": [*indexes]}, _COMMAND_S)

    def step_weights(self, side: Participant, indexes: Sequence[int]) -> None:
        """Have the counterparts of these weights take the shared values, in place, as in a step of training. Raises as
        ``let_go`` does."""
        with self._awake(side):
            side.link.command({"op": "step_weights", "indexes": [*indexes]}, _COMMAND_S)

    @contextlib.contextmanager
    def interleaved(self, side: Participant, variant: Variant) -> Iterator[None]:
        """Have the model of ``side`` called with other inputs between each forward and its backward meanwhile."""
        self._show(self._make(_Drawing(variant, secrets.randbits(63), backward=True)))
        self.device.synchronize()
        self._command(side, {"op": "interleave"})
        yield
        side.memory.close()  # an allocation that is open here stays in use
        self._command(side, {"op": "interleave_no_more"})

    def deliver_within(self, side: Participant) -> None:
        """Have results copied to the shared memory within the call, because the runner's memory cannot be read."""
        self._command(side, {"op": "deliver_within"})

    def let_go(self, side: Participant) -> int:
        """Have the shared memory closed, after the last call. Return the device memory that the side reports to hold
        then, in bytes. Raises ``RunnerFailed``, ``RunnerGone`` and ``RunnerTimeout`` for either side, since the
        evaluation is over."""
        side.memory.close()
        with self._awake(side):
            side.link.let_go(_LET_GO_S)
            return side.link.call(CallMode.AWAKE, _LET_GO_S).report.peak_bytes

    def _call_once(
        self,
        side: Participant,
        mode: CallMode,
        variant: Variant,
        timeout_s: float,
        *,
        glance: bool,
        cold: bool,
        compared: bool,
    ) -> tuple[TimedCall, Commitment]:
        """Make one call of either side; return it with its commitment, the later evidence of its inputs and results.

        Where work can remain on a device, the steps are the same for both sides while the candidate is timed, needed or
        not. Leaving the fingerprints out for the baseline alone made it 8 % slower on an H200. There are two
        differences: the inputs that preludes write, and whether the call before a short one has the same inputs. On
        other devices, only the steps within the judge's clock are the same.

        The side's processes run from shortly before the release until they are done, or have delivered where they must.
        Otherwise they are stopped.
        """
        timeline = Timeline()
        delivered = ["outputs"]
        if mode is CallMode.BACKWARD:
            delivered += ["input_gradients", "weight_gradients"]
        drawing = _Drawing(variant, secrets.randbits(63), backward=mode is CallMode.BACKWARD)
        shown = GIVEN if drawing.backward else GIVEN[:1]
        planted = self.source.planted_rows(variant, drawing.seed)
        commitment = self.commitments.prepare([*shown, *delivered], glance=glance, planted=planted)
        self.commitments.prepare_done(commitment, delivered)
        results = sum(len(self.blocks[name].tensors) for name in delivered)
        locations: list[Location] = []
        warms = self.is_short(mode) or not cold
        # With warm caches, a side that has had the same inputs before would find more of its weights there.
        same_again = side is self.baseline and self.device.outlives_processes and cold
        warming = self._make_warming(drawing) if warms and not same_again else None
        given = self._give(drawing, commitment, glance=glance) if compared else self._give_spent(drawing)
        if warms and same_again:
            # Left-behind work could wait for other inputs in between, and resume at their sight.
            warming = replace(given)
        for name in delivered:
            # The pattern is unpredictable, so an unwritten element is never right by chance.
            self._poison(name)
        # A candidate that is not timed yet does not need an idle device, nor empty caches where emptying takes long.
        timed = self.alone or side is self.baseline
        if timed and self.device.outlives_processes:
            self.device.synchronize()
        timeline.note("drawing")
        prelude_ms = self._await_calm(mode, self._prelude_inputs(side, drawing, given)) if timed else 0.0
        flushes = cold and (timed or self.device.outlives_processes)
        timeline.note("preludes")

        def show(number: int = 0) -> None:
            self._show(given)
            if flushes:
                self.device.flush_cache()
            side.open_gate(number)
            self.device.synchronize()

        def show_soon(number: int) -> None:
            # The device is busy for longer than the runner takes to request its first kernels, which then follow each
            # other as fast as they can. Otherwise chance decides whether the device has turned to the runner by then,
            # and calls of microseconds take three times as long when it has. The gate opens last. Copies, for which a
            # device need not turn to the runner, would otherwise fetch inputs that are not there yet.
            self.device.occupy(backward=mode is CallMode.BACKWARD)
            last = given.size_bytes <= _SHOWN_LAST_BYTES
            if last and flushes:
                self.device.overwrite_cache()
            self._show(given)
            if flushes and not last:
                self.device.overwrite_cache()
            side.open_gate(number)

        def take_back() -> None:
            if not self.device.outlives_processes:
                # Otherwise a thread would go on during the following steps, which take longer with larger inputs.
                side.halt()
            # Results that are not computed by now can never be: the inputs are gone.
            self.commitments.pick(commitment, shown)
            for name in shown:
                self._poison(name)
            # The time after this is not measured, so all results are read before the clock stops, in their own place.
            locations.extend(side.link.locations(results))
            with self._blamed_for_memory(side):
                self.commitments.read_done(commitment, delivered, locations, side.memory)
            self.device.synchronize()

        with side.stopped_afterwards():
            if warming is not None:
                self._show(warming)
                self.device.synchronize()
                self._wake(side)
                side.link.call(mode, timeout_s, before=side.open_gate)
                if not self.device.outlives_processes:
                    side.stop()
                    if cold:  # on the warm track the next call is to find the caches as this one leaves them
                        self._spoil(side, mode, delivered)
                del warming
                timeline.note("the call before")
            peak_bytes = 0
            if self.device.outlives_processes:
                # Waking takes a millisecond, so it comes first; the inputs come within the clock. On a device that
                # works for one process at a time, an early start while they are written gains nothing.
                self._wake(side)
                awake = CallMode.AWAKE if cold else CallMode.AWAKE_WARM
                peak_bytes = side.link.call(awake, self.limits.call_s).report.peak_bytes
                timeline.note("waking")
                # The warm track includes the time of requesting the kernels, as in a user's own loop.
                before = show_soon if cold and self._is_soon(mode) else show
                call = side.link.call(mode, timeout_s, before=before, settle=take_back)
            else:
                # Other processors could begin while the inputs are written, so that comes before the processes are
                # woken.
                show()
                waits = side.enclosure.waits()
                call = side.link.call(mode, timeout_s, wake=lambda: self._wake(side), settle=take_back)
                call = replace(call, waited_ms=total_wait_ms(waits, side.enclosure.waits()))
                # The check takes half a millisecond, and a candidate that gains by such mappings has to use them in
                # most calls.
                if secrets.randbelow(_MAPPINGS_OF) == 0:
                    repeated = self.commitments.repeated(commitment, side.memory)
                    if repeated:
                        raise self._blame(side, f"{repeated} lies in memory that is mapped there several times")
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
            with self._blamed_for_memory(side):
                if compared:
                    self.commitments.take(commitment, delivered, side.memory)
                    if not glance:
                        self.commitments.pick(commitment, delivered)
                self.commitments.spoil(delivered, locations, side.memory, side.kept[mode])
            self.device.synchronize()
            commitment.doubtful = side.memory.was_open
        timeline.note("results")
        self._require_done(side, commitment, call.report, delivered)
        if compared:
            self._commit_to(delivered, commitment, drawing, glance=glance)
        timeline.note("commitment")
        report = replace(call.report, peak_bytes=peak_bytes)
        return replace(call, report=report, prelude_ms=prelude_ms, steps_ms=timeline.ms), commitment

    def _have_delivered(self, side: Participant, mode: CallMode, commitment: Commitment, names: Sequence[str]) -> None:
        """Have the runner copy its results into the shared memory."""

        def settle() -> None:
            self.commitments.pick(commitment, names)
            self.commitments.pick_delivered(commitment)
            self.device.synchronize()

        if not self.device.outlives_processes:
            self._wake(side)  # it was stopped within the clock
        side.link.call(CallMode.DELIVER, self.limits.call_s, settle=settle)
        side.kept[mode] = side.link.kept_outputs() & side.may_keep

    def _spoil(self, side: Participant, mode: CallMode, names: Sequence[str]) -> None:
        """Have the results of a call that is not compared spoiled, as those of other calls are."""
        if mode in side.kept:
            locations = side.link.locations(sum(len(self.blocks[name].tensors) for name in names))
            with self._blamed_for_memory(side):
                self.commitments.spoil(names, locations, side.memory, side.kept[mode])

    @contextlib.contextmanager
    def _blamed_for_memory(self, side: Participant) -> Iterator[None]:
        """Attribute it to a side when its memory cannot be used as reported."""
        try:
            yield
        except Unreadable as error:
            raise self._blame(side, str(error)) from None

    def _require_done(
        self, side: Participant, commitment: Commitment, report: CallReport, delivered: Sequence[str]
    ) -> None:
        """Compare the delivered values with those at "done". Raises ``_Remapped`` where these were read in memory that
        may have been another tensor's before, and otherwise as ``_blame`` does."""
        was_open = side.memory.was_open
        side.memory.end_call()
        late = self.commitments.late(commitment, report, delivered)
        if not late:
            return
        if was_open and self.remaps:
            self.remaps -= 1
            side.memory.close()
            raise _Remapped
        raise self._blame(side, f"{late} is not as it was when the {side.name} had said that it was done")

    def _blame(self, side: Participant, message: str) -> Exception:
        """Return the error for a broken rule: ``Violation`` for a candidate, ``InfrastructureFault`` for a baseline."""
        return Violation(message) if side is self.candidate else InfrastructureFault(message)

    def _give(self, drawing: _Drawing, commitment: Commitment, *, glance: bool) -> CallInputs:
        """Draw the tensors for a call, and commit to them."""
        given = self._draw(drawing)
        kept = not self.source.repeatable or given.size_bytes <= _KEPT_BYTES
        if kept and not glance:
            drawing.kept = given
        self.commitments.commit(commitment, dict(given.blocks))
        return given

    def _give_spent(self, drawing: _Drawing) -> CallInputs:
        """Return tensors of an earlier call of this kind, for the baseline, from which nothing must be hidden. Each
        serves only once, since a candidate does not get the same ones again either. Calls before a candidate's are
        given new ones by turns."""
        again = self.spent.get(drawing.kind)
        return again.pop() if again else self._draw(drawing)

    def _draw(self, drawing: _Drawing) -> CallInputs:
        """Draw tensors that no call was given before."""
        given = self._make(drawing)
        # These copies cannot be changed by a runner: small ones serve once more.
        if not self.device.outlives_processes and given.size_bytes <= _WARMING_KEPT_BYTES:
            # One kind at a time, and two calls of it: of pairs A B B A, both calls of B find one of A's.
            latest = self.spent.get(drawing.kind, [])[-1:]
            self.spent.clear()
            self.spent[drawing.kind] = [*latest, replace(given)]
        return given

    def _commit_to(self, delivered: Sequence[str], commitment: Commitment, drawing: _Drawing, *, glance: bool) -> None:
        """Commit to the delivered results of a call. Where the commitment needs the inputs, they are put in place again
        first."""
        # With row sampling, everything that is compared has private copies.
        if not glance and not commitment.has_copies(GIVEN):
            self._restore(commitment, drawing)
        self.commitments.commit(commitment, {name: self.blocks[name].tensors for name in delivered})
        self.device.synchronize()

    def _show(self, given: CallInputs) -> None:
        """Write the tensors of a call to the shared memory."""
        for name, tensors in given.blocks:
            if tensors:
                for target, tensor in zip(self.blocks[name].tensors, tensors, strict=True):
                    target.copy_(tensor)

    def _poison(self, name: str) -> None:
        # All 64 bits are random, including the sign. If one were never set, inputs could be recognised by it.
        self.blocks[name].memory.view(torch.int64).fill_(secrets.randbits(64) - 2**63)

    def _prelude_inputs(self, side: Participant, drawing: _Drawing, given: CallInputs) -> CallInputs | None:
        """Return the inputs that the preludes of a call write; ``None`` for too large ones, and where there are no
        preludes.

        They are tensors of the call's own kind. Work could wait for a value that these have, and a pattern has not, and
        would begin unseen with the call.

        The baseline's preludes write the ``given`` inputs of the call. Writing them once more changes nothing, so work
        that waits for a change does not begin then. A candidate's preludes write the baseline's last inputs: its
        left-behind work could make use of its own.
        """
        if not self.device.outlives_processes:
            return None
        if given.size_bytes > PRELUDE_BYTES:
            self.prelude_inputs.clear()  # inputs of a forward, which are less
            return None
        if side is self.baseline or drawing.kind not in self.prelude_inputs:
            self.prelude_inputs.clear()  # one kind at a time
            self.prelude_inputs[drawing.kind] = replace(given) if side is self.baseline else self._other(drawing)
        return self.prelude_inputs[drawing.kind]

    def _write(self, mode: CallMode, written: CallInputs | None) -> None:
        """Write to all input blocks of a call of ``mode``."""
        if written is not None:
            self._show(written)
            return
        for name in GIVEN if mode is CallMode.BACKWARD else GIVEN[:1]:
            self._poison(name)

    def _await_calm(self, mode: CallMode, written: CallInputs | None) -> float:
        """With every process stopped, write to all input blocks of a call, as the call will, and work for a moment.

        Returns the time of the last prelude, in milliseconds. Preludes are the same in each call. So work that the
        candidate has left on the device, or set up to begin at a write, shows as a delay. Without ``written`` a pattern
        is written.
        """
        if not self.device.outlives_processes:
            return 0.0
        calm_ms = self.learnt.calm[mode].prelude_ms if mode in self.learnt.calm else None
        while True:
            for _ in range(1 + secrets.randbelow(_MOST_PRELUDES)):
                self.device.synchronize()
                begin = time.perf_counter()
                self._write(mode, written)
                self.device.flush_cache()
                self.device.probe()
                prelude_ms = 1000 * (time.perf_counter() - begin)
                is_calm = (
                    not self.alone
                    or calm_ms is None
                    or self.calmness.in_time(prelude_ms, calm_ms)
                    or self.calmness.undisturbed(self._look(mode, written), self.learnt.looks[mode])
                )
            if is_calm:
                return prelude_ms

    def _look(self, mode: CallMode, written: CallInputs | None) -> DeviceProbe:
        """Probe the device for interference, behind the write of a prelude and without it."""
        return DeviceProbe(self.device.look_ms(partial(self._write, mode, written)), self.device.look_ms(lambda: None))

    def _restore(self, commitment: Commitment, drawing: _Drawing) -> None:
        """Write the inputs of the runner once more, for the comparison. Raises ``_NotRepeatable``."""
        if drawing.kept is not None:
            self._show(drawing.kept)
            return
        again = self._make(drawing)
        self._show(again)
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

    def _make_warming(self, drawing: _Drawing) -> CallInputs:
        """Return tensors of the same kind for a call that is not compared; small ones are the same each time."""
        if drawing.kind in self.warming:
            return self.warming[drawing.kind]
        made = self._other(drawing)
        if made.size_bytes <= _WARMING_KEPT_BYTES:
            self.warming.clear()  # one kind at a time
            self.warming[drawing.kind] = made
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
        side.enclosure.thaw()
        if side.enclosure.ran_while_stopped_s > _RAN_S:
            raise self._blame(
                side,
                f"{side.name}'s processes used {side.enclosure.ran_while_stopped_s:.2f} s of processor time while "
                "they were stopped: they wake each other",
            )
