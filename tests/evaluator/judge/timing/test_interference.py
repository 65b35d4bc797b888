"""What the judge makes of prechecks that take longer than they did."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import astuple, replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from evaluator.config import Limits
from evaluator.judge.correctness.commitment import INPUT_BLOCKS
from evaluator.judge.errors import Violation
from evaluator.judge.inputs.drawing import Variant
from evaluator.judge.link import TimedCall
from evaluator.judge.timing.interference import DeviceProbe, InterferenceMonitor
from evaluator.judge.timing.timed_call import Calibration, Calibrations, Caller, CallInputs, _Drawing
from evaluator.protocol.control_page import CallMode, CallReport

_CALM_MS = 0.14
_LATE_MS = 0.43
_CALM = DeviceProbe(3.22, 3.2)
_ANOTHERS_WORK_MS = 0.16
"""What a device takes at the least to do something for another process in between."""


def _settles(interference: InterferenceMonitor, precheck_ms: float, probe: DeviceProbe) -> bool:
    """Whether a call may begin after a precheck, or it has to be repeated."""
    return interference.in_time(precheck_ms, _CALM_MS) or interference.undisturbed(probe, _CALM)


def _behind_write(more_ms: float) -> DeviceProbe:
    return DeviceProbe(_CALM.behind_write_ms + more_ms, _CALM.alone_ms)


def test_as_long_as_at_first_is_calm_and_nobody_looks() -> None:
    interference = InterferenceMonitor()
    assert all(interference.in_time(precheck_ms, _CALM_MS) for precheck_ms in [0.14, 0.12, 0.22] * 50)
    assert (interference.prechecks, interference.late, interference.disturbed) == (150, 0, 0)


def test_a_processor_that_becomes_slower_is_nobodys_fault() -> None:
    """As seen on four H200s at work: prechecks took two to three times as long, with nothing else on the device."""
    interference = InterferenceMonitor()
    probes = [_CALM, DeviceProbe(3.27, 3.2), DeviceProbe(3.2, 3.22)]
    assert all(_settles(interference, _LATE_MS, probe) for probe in probes * 100)
    assert (interference.late, interference.disturbed) == (300, 0)


def test_clocks_that_are_held_down_are_nobodys_fault() -> None:
    interference = InterferenceMonitor()
    assert all(_settles(interference, _LATE_MS, DeviceProbe(1.15 * 3.22, 1.15 * 3.2)) for _ in range(100))


def test_a_disturbed_precheck_is_repeated() -> None:
    interference = InterferenceMonitor()
    assert not _settles(interference, _LATE_MS, _behind_write(_ANOTHERS_WORK_MS))
    assert _settles(interference, _LATE_MS, _CALM)
    assert (interference.late, interference.disturbed) == (2, 1)


@pytest.mark.parametrize("times_as_slow", [1.3, 2.0, 6.0, 20.0])
def test_a_device_counts_for_as_long_as_it_is_busy(times_as_slow: float) -> None:
    """As with a stream that waits for the judge's pattern and then sleeps for 100 ms, before every other call: the
    slower the device is, the fewer probes it takes until it is calm."""
    interference, looked_ms = InterferenceMonitor(), 0.0
    busy = DeviceProbe(times_as_slow * _CALM.behind_write_ms, times_as_slow * _CALM.alone_ms)

    def before_each_call() -> None:
        nonlocal looked_ms
        for number in range(44):
            busy_ms = 100.0 if number % 2 else 0.0
            while busy_ms > 0:
                assert not _settles(interference, _LATE_MS, busy)
                busy_ms -= busy.whole_ms
                looked_ms += busy.whole_ms
            assert _settles(interference, _CALM_MS, _CALM)

    with pytest.raises(Violation, match="was busy while every process was stopped"):
        before_each_call()
    assert interference.bursts <= 12
    assert looked_ms <= 100.0 * interference.bursts + busy.whole_ms


def test_one_burst_of_anothers_work_and_a_few_looks_that_took_long_are_no_violation() -> None:
    interference = InterferenceMonitor()
    for _ in range(8):
        assert not _settles(interference, _LATE_MS, DeviceProbe(300.0, 3.2))
    assert (interference.bursts, interference.disturbance) == (1, 24.0)
    for number in range(100):
        assert _settles(interference, _CALM_MS, _CALM)
        if number % 30 == 0:
            assert not _settles(interference, _LATE_MS, DeviceProbe(300.0, 3.2))
    assert interference.bursts == 5


@pytest.mark.parametrize("share", [0.4, 1.0])
@pytest.mark.parametrize("busy", [_behind_write(_ANOTHERS_WORK_MS), DeviceProbe(5.3, 5.2)], ids=["begun", "resident"])
def test_work_of_somebody_elses_is_a_violation_if_it_is_always_there(share: float, busy: DeviceProbe) -> None:
    generator = random.Random(7)  # noqa: S311 - no secret
    interference = InterferenceMonitor()
    probes = [busy if generator.random() < share else _CALM for _ in range(1000)]
    with pytest.raises(Violation, match=r"the device was busy.*instead of 3\.220 ms behind a write"):
        [_settles(interference, _LATE_MS, probe) for probe in probes]
    assert interference.disturbed >= 5
    assert interference.prechecks < 60


def test_a_disturbance_now_and_then_is_not() -> None:
    interference = InterferenceMonitor()
    for number in range(1000):
        _settles(interference, _LATE_MS, DeviceProbe(5.3, 3.2) if number % 5 == 0 else _CALM)
    assert interference.disturbed == 200


def test_what_is_calm_is_not_spoiled_by_one_look() -> None:
    assert DeviceProbe.typical([DeviceProbe(3.22, 3.2), DeviceProbe(9.0, 3.3), DeviceProbe(3.12, 3.1)]) == DeviceProbe(
        pytest.approx(3.22), 3.2
    )


class Learner(Caller):
    """A caller whose calls of the baseline take what a test says, and which notes how each was released."""

    def __init__(self, latencies_ms: list[float], calibrations: Calibrations | None = None) -> None:
        layout = SimpleNamespace(size_bytes=2**20)
        device: Any = SimpleNamespace(asynchronous=True, interference_probe_ms=lambda _begin: 3.2)
        blocks: Any = {name: SimpleNamespace(layout=layout) for name in INPUT_BLOCKS}
        unused: Any = None
        super().__init__(
            device,
            Limits(),
            unused,
            unused,
            blocks,
            (),
            unused,
            unused,
            False,
            lambda _side: nullcontext(),
            {},
            {},
            {},
            calibrations or Calibrations(),
        )
        self.latencies_ms = latencies_ms
        self.released: list[tuple[bool, bool]] = []

    def call(self, *_arguments: Any, **_options: Any) -> Any:
        mode = CallMode.FORWARD
        self.released.append((self._releases_while_busy(mode), self.is_short(mode)))
        latency_ms = self.latencies_ms.pop(0)
        # A call that is released while the device is busy has that within the judge's clock.
        outer_ms = latency_ms + (0.8 if self._releases_while_busy(mode) else 0.1)
        return TimedCall(outer_ms, CallReport(latency_ms, 0, 0, 0.0), precheck_ms=_CALM_MS), None


@pytest.mark.parametrize(
    ("latencies_ms", "calls"),
    [
        ([0.05] * 5, 5),  # as the second call, so are those after it
        ([900.0, 30.0] + [0.05] * 6, 8),  # the second one recorded a graph
        ([8.0] * 5, 5),
        ([900.0, 0.05] + [8.0] * 6, 8),
        ([900.0, 1.2, *[0.9] * 3, *[1.1] * 3, *[0.9] * 3], 11),  # around a bound: not for ever
        ([900.0, 5.1, *[4.99] * 3], 5),  # above 5 ms they are released as below
    ],
)
def test_calm_is_what_calls_are_like_that_are_released_as_all_later_ones_are(
    latencies_ms: list[float], calls: int
) -> None:
    learner = Learner(latencies_ms)
    learner.calibrate(CallMode.FORWARD)
    assert not learner.latencies_ms
    assert len(learner.released) == calls
    calm = learner.calibrations.by_mode[CallMode.FORWARD]
    learner.latencies_ms = [calm.baseline_ms]
    call, _ = learner.call()
    assert set(learner.released[-4:]) == {learner.released[-1]}
    assert calm.overhead_ms == pytest.approx(call.outer_ms - calm.baseline_ms)


def _later(latencies_ms: list[float], **changes: Any) -> Learner:
    """A learner of the same baseline, in the evaluation after one in which calls took 0.05 ms."""
    before = Learner([0.05] * 5)
    before.calibrate(CallMode.FORWARD)
    calm = before.calibrations.by_mode[CallMode.FORWARD]
    before.calibrations.by_mode[CallMode.FORWARD] = replace(calm, **changes)
    return Learner(latencies_ms, before.calibrations)


@pytest.mark.parametrize("latencies_ms", [[0.05], [0.06], [3.0, 0.05]])
def test_of_a_baseline_that_is_kept_a_call_proves_what_was_learnt_before(latencies_ms: list[float]) -> None:
    learner = _later(latencies_ms)
    known = (dict(learner.calibrations.by_mode), dict(learner.calibrations.releases), dict(learner.calibrations.probes))
    learner.calibrate(CallMode.FORWARD)
    assert not learner.latencies_ms
    assert (learner.calibrations.by_mode, learner.calibrations.releases, learner.calibrations.probes) == known
    assert set(learner.released) == {(True, True)}


@pytest.mark.parametrize(
    ("latency_ms", "changes"),
    [
        (0.2, {}),
        (0.05, {"overhead_ms": 0.66}),
        (0.05, {"precheck_ms": 0.05}),
    ],
)
def test_a_baseline_that_is_kept_and_takes_longer_now_is_learnt_anew(
    latency_ms: float, changes: dict[str, float]
) -> None:
    learner = _later([latency_ms] * 7, **changes)
    learner.calibrate(CallMode.FORWARD)
    assert not learner.latencies_ms, "two that should have proved it, and the five that are made of a new one"
    fresh = Learner([latency_ms] * 5)
    fresh.calibrate(CallMode.FORWARD)
    assert learner.calibrations == fresh.calibrations


@pytest.mark.parametrize(
    ("latency_ms", "changes", "held"),
    [
        # Calls have 0.8 ms between the clocks, and a precheck of 0.14 ms. Half of what may be longer may be shorter.
        (0.02, {}, Calibration(0.8, 0.02 + 0.5 * (0.02 + 0.05 * 0.05), _CALM_MS)),
        (0.05, {"overhead_ms": 0.88}, Calibration(0.8 + 0.5 * (0.1 + 0.05 * 0.88), 0.05, _CALM_MS)),
        (0.05, {"precheck_ms": 0.3}, Calibration(0.8, 0.05, _CALM_MS + 0.5 * (0.08 + 0.05 * 0.3))),
    ],
)
def test_nothing_is_believed_to_take_much_longer_than_it_does_now(
    latency_ms: float, changes: dict[str, float], held: Calibration
) -> None:
    """Who is believed to take longer could have as much done to it unnoticed."""
    learner = _later([latency_ms] * 2, **changes)
    learner.calibrate(CallMode.FORWARD)
    found = learner.calibrations.by_mode[CallMode.FORWARD]
    assert astuple(found) == pytest.approx(astuple(held))


def test_one_call_that_takes_less_may_be_luck() -> None:
    """Of two that take less the longer counts: what nobody reaches would make a fault of every evaluation."""
    learner = _later([0.03, 0.045], baseline_ms=0.08)
    learner.calibrate(CallMode.FORWARD)
    assert not learner.latencies_ms
    assert learner.calibrations.by_mode[CallMode.FORWARD].baseline_ms == pytest.approx(
        0.045 + 0.5 * (0.02 + 0.05 * 0.08)
    )


def test_a_baseline_that_has_become_short_is_learnt_anew() -> None:
    learner = Learner([1.5] * 5)
    learner.calibrate(CallMode.FORWARD)
    assert not learner.is_short(CallMode.FORWARD)
    later = Learner([0.6] * 10, learner.calibrations)
    later.calibrate(CallMode.FORWARD)
    assert later.is_short(CallMode.FORWARD)
    assert later.calibrations.by_mode[CallMode.FORWARD].baseline_ms == 0.6


@pytest.mark.parametrize("interference_probe_ms", [3.6, 2.8])
def test_a_device_that_has_changed_is_looked_at_anew(interference_probe_ms: float) -> None:
    learner = _later([0.05] * 6)
    learner.calibrations.probes[CallMode.BACKWARD] = DeviceProbe(3.4, 3.2)
    learner.device = cast(
        Any, SimpleNamespace(asynchronous=True, interference_probe_ms=lambda _begin: interference_probe_ms)
    )
    learner.calibrate(CallMode.FORWARD)
    assert not learner.latencies_ms
    assert learner.calibrations.probes == {CallMode.FORWARD: DeviceProbe(interference_probe_ms, interference_probe_ms)}


def test_a_backward_has_a_look_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """More is written for it, and work may wait for upstream gradients alone."""
    learner = Learner([0.05] * 10)
    written: list[str] = []

    def interference_probe_ms(write: Callable[[], None]) -> float:
        written.clear()
        write()
        return 3.2 + 0.1 * len(written)

    learner.device = cast(Any, SimpleNamespace(asynchronous=True, interference_probe_ms=interference_probe_ms))
    monkeypatch.setattr(learner, "_poison", written.append)
    learner.calibrate(CallMode.FORWARD)
    learner.calibrate(CallMode.BACKWARD)
    writes_ms = [learner.calibrations.probes[mode].write_ms for mode in (CallMode.FORWARD, CallMode.BACKWARD)]
    assert writes_ms == pytest.approx([0.1, 0.2])


def test_the_device_has_to_be_calm_before_calls_that_are_timed_for_the_figures(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Before, the processes of the next evaluation come to it."""
    learner = Learner([0.05] * 5)
    learner.calibrate(CallMode.FORWARD)
    busy: Any = SimpleNamespace(
        asynchronous=True,
        synchronize=lambda: time.sleep(0.001),
        flush_cache=lambda: time.sleep(0.001),
        probe=lambda: None,
    )
    learner.device = busy
    monkeypatch.setattr(learner, "_poison", lambda _name: None)
    monkeypatch.setattr(learner, "_probe_interference", lambda _mode, _written: _behind_write(5.0))
    assert [learner._await_idle(CallMode.FORWARD, None) >= 1.0 for _ in range(20)] == [True] * 20
    assert learner.interference.prechecks == 0
    learner.exclusive = True
    with pytest.raises(Violation, match="busy while every process was stopped"):
        learner._await_idle(CallMode.FORWARD, None)


def test_a_probe_writes_what_the_precheck_before_it_wrote(monkeypatch: pytest.MonkeyPatch) -> None:
    """Work that waits for a value which inputs have and a pattern has not would otherwise not begin in it."""
    learner = Learner([0.05] * 5)
    learner.calibrate(CallMode.FORWARD)
    learner.exclusive = True
    written: list[Any] = []

    def interference_probe_ms(write: Callable[[], None]) -> float:
        written.append("probe")
        write()
        return 3.2

    slow: Any = SimpleNamespace(
        asynchronous=True,
        synchronize=lambda: None,
        flush_cache=lambda: time.sleep(0.001),
        probe=lambda: None,
        interference_probe_ms=interference_probe_ms,
    )
    learner.device = slow
    monkeypatch.setattr(learner, "_write_inputs", written.append)
    inputs = CallInputs([], [])
    learner._await_idle(CallMode.FORWARD, inputs)
    once = [inputs, "probe", inputs, "probe"]
    assert written in (once, [*once, *once])


def test_prechecks_of_the_baseline_write_what_it_is_given_and_those_of_a_candidate_what_it_was_given_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So nothing changes between a precheck of the baseline's and its call; and of its own inputs nothing is shown to
    what a candidate may have left behind."""
    learner = Learner([])
    candidate, learner.baseline = cast(Any, object()), cast(Any, object())
    new, one, other = (CallInputs([torch.tensor([value])], []) for value in (0.0, 1.0, 2.0))
    monkeypatch.setattr(learner, "_make", lambda _drawing: new)
    mixed, as_written = (_Drawing(kind, 1, backward=False) for kind in (Variant.MIXED, Variant.AS_WRITTEN))
    assert learner._precheck_inputs(candidate, mixed, other) is new
    found = learner._precheck_inputs(learner.baseline, mixed, one)
    assert found is not None
    one.drop()  # the call is over
    assert found.inputs[0].tolist() == [1.0]
    assert learner._precheck_inputs(candidate, mixed, other) is found
    assert learner._precheck_inputs(candidate, as_written, other) is new
    large = CallInputs([torch.empty(2**30 + 1, dtype=torch.uint8, device="meta")], [])
    assert learner._precheck_inputs(learner.baseline, mixed, large) is None


def test_a_slow_first_call_does_not_decide_how_calls_are_released() -> None:
    learner = Learner([])
    learner.baseline_ms[CallMode.FORWARD] = [21.0, 0.13]
    learner.decide_releases()
    assert learner.is_short(CallMode.FORWARD)
