"""Waiting: by how much calls on a CPU were held up because other programs had its processors.

The kernel counts how long each thread is ready to run and has no processor (``/proc/PID/schedstat``, its second
figure). A part of that falls between the judge's clock and the runner's, where threads are woken; the rest makes what
the runner measures longer. On a busy machine one process can be held up in each of its calls and another in none, so
that no number of calls tells the one's model from the other's. Pure functions of what was measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from evaluator.judge.link import TimedCall

__all__ = ["held_up_ms"]

_MOST: Final = 0.95
"""Of a call; some of it was work."""
_LEAST: Final = 0.02
"""What is less than this share of a call is no more than what waking takes now and then."""


def held_up_ms(candidate: Sequence[TimedCall], baseline: Sequence[TimedCall]) -> tuple[list[float], list[float]]:
    """For each call of either side, how much of the runner's time its threads may have waited for a processor, in ms.

    Both sides' least wait and least overhead (outer less device time) stand for undisturbed calls. A longer overhead
    has taken up as much of the wait.
    """
    calls = [*candidate, *baseline]
    usual_wait_ms = min(call.waited_ms for call in calls)
    usual_overhead_ms = min(_overhead_ms(call) for call in calls)

    def held_up(call: TimedCall) -> float:
        outside_ms = _overhead_ms(call) - usual_overhead_ms
        within_ms = call.waited_ms - usual_wait_ms - outside_ms
        least_ms, most_ms = (share * call.report.device_ms for share in (_LEAST, _MOST))
        return min(within_ms, most_ms) if within_ms > least_ms else 0.0

    return [held_up(call) for call in candidate], [held_up(call) for call in baseline]


def _overhead_ms(call: TimedCall) -> float:
    return call.outer_ms - call.report.device_ms
