"""Checks that a device is as idle before each call as it was before the candidate had the shared memory.

The judge times its own last steps before a call (the *precheck*) while every process is stopped. Work that a candidate
has left on the device delays them. A processor that has become slower delays them as well, because the judge's
processor requests each step and waits for it. On a machine where four GPUs were at work, prechecks of 0.14 ms took up
to 0.43 ms, for whole evaluations.

So a precheck that took longer is followed by an interference probe: some milliseconds of work, requested ahead, by the
device's own clock. It runs once behind a write to the shared blocks, and once without. It does not depend on the
processor, unless that stops for a millisecond during the requests. Three cases can be told apart:

- Work that begins with a write makes the first probe longer than the second.
- Work that never pauses takes every other time slice of both.
- A device whose clocks are held down takes longer for both alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from evaluator.judge.errors import DeviceBusy
from evaluator.judge.timing.statistics import median_ms

__all__ = ["DeviceProbe", "InterferenceMonitor"]

_LONGER_SHARE: Final = 0.05
_LATE_MS: Final = 0.08
"""Half of the least time that a device takes for another process in between."""
_BEGUN_MS: Final = 0.1
"""Less than that time, and more than the difference of two probes."""
_SHARED: Final = 1.25
"""Work takes longer by this factor at the least on a device that serves another process in every other time slice."""
_MAX_PROBE_RATIO: Final = 3.0
"""A probe counts for at most this many probes of an idle device, since a processor may be interrupted during the
requests."""
_MIN_BURSTS: Final = 5
"""The busy time of the device decides only after busy times before this many calls: another program's work may be one
burst."""
_MOST_DISTURBED: Final = 10
_MOST_DISTURBED_SHARE: Final = 0.3


@dataclass(frozen=True)
class DeviceProbe:
    """The time of some work on the device, in milliseconds by its own clock, behind a write and without one."""

    behind_write_ms: float
    alone_ms: float

    @property
    def write_ms(self) -> float:
        """The time of the write, with all that it began."""
        return self.behind_write_ms - self.alone_ms

    @property
    def whole_ms(self) -> float:
        """The time of both parts."""
        return self.behind_write_ms + self.alone_ms

    def resembles(self, other: DeviceProbe) -> bool:
        """Whether the device is in the state of the ``other`` probe."""
        differs_ms = abs(self.alone_ms - other.alone_ms)
        begun_ms = abs(self.write_ms - other.write_ms)
        return differs_ms <= _LONGER_SHARE * other.alone_ms and begun_ms <= _LONGER_SHARE * other.write_ms + _BEGUN_MS

    @classmethod
    def typical(cls, probes: list[DeviceProbe]) -> DeviceProbe:
        """Return the medians of a few probes."""
        alone_ms = median_ms([probe.alone_ms for probe in probes])
        return cls(alone_ms + median_ms([probe.write_ms for probe in probes]), alone_ms)


@dataclass
class InterferenceMonitor:
    """The findings of the prechecks of one session with this many ``candidates``. ``late``: the prechecks that took
    longer than at first. ``disturbed``: those of them that the device delayed, in so many ``bursts``. ``disturbance``:
    the total delay, in probes of an idle device. The slower a device is, the fewer probes are made while it is busy."""

    candidates: int = 1
    prechecks: int = 0
    late: int = 0
    disturbed: int = 0
    bursts: int = 0
    disturbance: float = 0.0
    _was_calm: bool = True

    def in_time(self, precheck_ms: float, calm_ms: float) -> bool:
        """Whether a precheck took no longer than at first (``calm_ms``); otherwise a probe must follow."""
        self.prechecks += 1
        late = precheck_ms > (1 + _LONGER_SHARE) * calm_ms + _LATE_MS
        self.late += late
        self._was_calm = self._was_calm or not late
        return not late

    def undisturbed(self, probe: DeviceProbe, calm: DeviceProbe) -> bool:
        """Whether a probe found the device as idle as at first (``calm``); otherwise the precheck must be repeated.

        Raises ``DeviceBusy`` where too many probes have found it busy.
        """
        begun = probe.write_ms > (1 + _LONGER_SHARE) * calm.write_ms + _BEGUN_MS
        if not begun and probe.alone_ms <= _SHARED * calm.alone_ms:
            self._was_calm = True
            return True
        self.disturbed += 1
        self.bursts += self._was_calm
        self._was_calm = False
        self.disturbance += min(_MAX_PROBE_RATIO, max(1.0, probe.whole_ms / calm.whole_ms))
        counted = self.disturbance if self.bursts >= _MIN_BURSTS else self.disturbed
        if counted > _MOST_DISTURBED + _MOST_DISTURBED_SHARE * self.prechecks / self.candidates:
            raise DeviceBusy(
                f"the device was busy while every process was stopped: {self.disturbed} of {self.prechecks} times, and "
                f"as long as {self.disturbance:.0f} of the judge's looks at it take, its own work took it longer than "
                f"before the candidate had the shared memory, at last "
                f"{probe.behind_write_ms:.3f} instead of {calm.behind_write_ms:.3f} ms behind a write and "
                f"{probe.alone_ms:.3f} instead of {calm.alone_ms:.3f} ms without"
            )
        return False
