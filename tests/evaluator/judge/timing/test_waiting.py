"""What held up a call on a CPU, from the kernel's figures and both clocks, and what that does to an interval."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from evaluator.judge.link import TimedCall
from evaluator.judge.timing.waiting import sched_delay_ms
from evaluator.protocol.control_page import CallReport
from evaluator.sandbox.freezer import Freezer, total_wait_ms

_OVERHEAD_MS = 0.8


def _call(device_ms: float, waited_ms: float, outside_ms: float = 0.0) -> TimedCall:
    return TimedCall(
        device_ms + _OVERHEAD_MS + outside_ms, CallReport(device_ms, 0, 0, 0.0), precheck_ms=0.0, waited_ms=waited_ms
    )


def test_waiting_that_waking_always_takes_holds_nobody_up() -> None:
    calls = [_call(0.2, 0.08), _call(0.25, 0.083), _call(0.2, 0.08)]
    assert sched_delay_ms(calls, calls) == ([0.0] * 3, [0.0] * 3)


def test_waiting_beyond_the_runners_clock_shows_in_the_overhead_and_is_not_taken_off_twice() -> None:
    calm = _call(0.2, 0.08)
    ours, theirs = sched_delay_ms([_call(0.2, 4.08, outside_ms=4.0)], [calm])
    assert (ours, theirs) == ([0.0], [0.0])


def test_waiting_within_the_runners_clock_may_be_all_that_makes_a_call_longer() -> None:
    ours, theirs = sched_delay_ms([_call(1.5, 0.5)], [_call(16.0, 14.5), _call(20.0, 40.0)])
    assert ours == [0.0]
    assert theirs == [pytest.approx(14.0), pytest.approx(19.0)]


def test_the_kernel_counts_how_long_a_thread_waits_for_a_processor() -> None:
    processor = min(os.sched_getaffinity(0))
    loop = f"""
import os, time
os.sched_setaffinity(0, {{{processor}}})
print("on", flush=True)
begin = time.monotonic()
while time.monotonic() - begin < 60:
    pass
"""
    command = [sys.executable, "-c", loop]
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE) as one,
        subprocess.Popen(command, stdout=subprocess.PIPE) as other,
    ):
        try:
            for process in (one, other):
                assert process.stdout is not None
                process.stdout.readline()
            freezer = Freezer(one.pid, None)
            before = freezer.waits()
            time.sleep(1.0)
            waited_ms = total_wait_ms(before, freezer.waits())
        finally:
            one.kill()
            other.kill()
    assert 100 < waited_ms < 2000, "two loops share one processor"


def test_of_a_process_that_is_gone_nothing_is_known() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    freezer = Freezer(process.pid, None)
    assert total_wait_ms(freezer.waits(), freezer.waits()) == 0.0
