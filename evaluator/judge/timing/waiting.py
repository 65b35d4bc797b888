"""Waiting: the delay of calls on a CPU because other programs had its processors.

The kernel counts the time in which each thread is ready to run and has no processor (``/proc/PID/schedstat``, its
second figure). A part of it falls between the judge's clock and the runner's, where threads are woken. The rest
prolongs the runner's own measurement. On a busy machine one process can be delayed in each of its calls and another in
none. So no number of calls distinguishes their models. All functions here are pure functions of measurements.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from evaluator.judge.link import TimedCall

__all__ = ["sched_delay_ms"]

_MOST: Final = 0.95
"""The most waiting time, as a share of a call; some of the call was work."""
_LEAST: Final = 0.02
"""Less than this share of a call is no more than the occasional time of waking."""


def sched_delay_ms(candidate: Sequence[TimedCall], baseline: Sequence[TimedCall]) -> tuple[list[float], list[float]]:
    """Return for each call of either side the time that the runner's threads may have waited for a processor, in ms.

    Both sides' least wait and least overhead (outer less device time) stand for undisturbed calls. A longer overhead
    has taken up as much of the wait.
    """
    calls = [*candidate, *baseline]
    usual_wait_ms = min(call.waited_ms for call in calls)
    usual_overhead_ms = min(_overhead_ms(call) for call in calls)

    def sched_delay(call: TimedCall) -> float:
        outside_ms = _overhead_ms(call) - usual_overhead_ms
        within_ms = call.waited_ms - usual_wait_ms - outside_ms
        least_ms, most_ms = (share * call.report.device_ms for share in (_LEAST, _MOST))
        return min(within_ms, most_ms) if within_ms > least_ms else 0.0

    return [sched_delay(call) for call in candidate], [sched_delay(call) for call in baseline]


def _overhead_ms(call: TimedCall) -> float:
    return call.outer_ms - call.report.device_ms
