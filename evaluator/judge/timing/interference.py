"""Whether a device is as calm before each call as it was before the candidate had the shared memory.

The judge times its own last steps before a call (the *prelude*) while every process is stopped. Work that a candidate
has left on the device delays them, and so does a processor that has become slower: it is the judge's processor that
asks for each step and waits for it. On a machine where four GPUs were at work, preludes of 0.14 ms took up to 0.43 ms,
for whole evaluations. So a prelude that took longer is followed by a *look*: some milliseconds of work, asked for
ahead, by the device's own clock, once behind a write to what the runners share and once without. That knows nothing of
the processor, unless it stops for a millisecond while it asks. Whatever begins with a write makes the first longer than
the second; who is at it all the time takes every other time slice of both; a device whose clocks are held down takes
longer for both alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from evaluator.judge.errors import DeviceBusy
from evaluator.judge.timing.statistics import median_ms

__all__ = ["DeviceProbe", "InterferenceMonitor"]

_LONGER_SHARE: Final = 0.05
_LATE_MS: Final = 0.08
"""Half of what a device takes at the least to do something for another process in between."""
_BEGUN_MS: Final = 0.1
"""Less than that, and more than two looks differ by."""
_SHARED: Final = 1.25
"""By so much longer work takes on a device that does something else in every other time slice, and less."""
_MOST_OF_A_LOOK: Final = 3.0
"""A look counts for no more calm looks than this, since a processor may be at something else while it asks."""
_FEWEST_BURSTS: Final = 5
"""The time that a device was busy decides only where it was so before so many calls: some other program's work may be
one burst."""
_MOST_DISTURBED: Final = 10
_MOST_DISTURBED_SHARE: Final = 0.3


@dataclass(frozen=True)
class DeviceProbe:
    """How long some work took on the device, in milliseconds by its own clock, behind a write and without one."""

    behind_write_ms: float
    alone_ms: float

    @property
    def write_ms(self) -> float:
        """What the write took, with all that it began."""
        return self.behind_write_ms - self.alone_ms

    @property
    def whole_ms(self) -> float:
        """What both took."""
        return self.behind_write_ms + self.alone_ms

    def resembles(self, other: DeviceProbe) -> bool:
        """Whether a device that looks so is as it was then."""
        differs_ms = abs(self.alone_ms - other.alone_ms)
        begun_ms = abs(self.write_ms - other.write_ms)
        return differs_ms <= _LONGER_SHARE * other.alone_ms and begun_ms <= _LONGER_SHARE * other.write_ms + _BEGUN_MS

    @classmethod
    def typical(cls, looks: list[DeviceProbe]) -> DeviceProbe:
        """The medians of a few."""
        alone_ms = median_ms([look.alone_ms for look in looks])
        return cls(alone_ms + median_ms([look.write_ms for look in looks]), alone_ms)


@dataclass
class InterferenceMonitor:
    """What came of the preludes of one session of so many ``candidates``. ``late``: how many took longer than at first;
    ``disturbed``: how many of these because of the device, in so many ``bursts``; ``disturbance``: for how long, in
    looks at a calm device. The slower a device is, the fewer looks are made while it is busy."""

    candidates: int = 1
    preludes: int = 0
    late: int = 0
    disturbed: int = 0
    bursts: int = 0
    disturbance: float = 0.0
    _was_calm: bool = True

    def in_time(self, prelude_ms: float, calm_ms: float) -> bool:
        """Whether a prelude took no longer than ``calm_ms``, what it took at first; else the device is to be looked
        at."""
        self.preludes += 1
        late = prelude_ms > (1 + _LONGER_SHARE) * calm_ms + _LATE_MS
        self.late += late
        self._was_calm = self._was_calm or not late
        return not late

    def undisturbed(self, look: DeviceProbe, calm: DeviceProbe) -> bool:
        """Whether a look at the device found it as ``calm`` as at first; else the prelude is to be repeated.

        Raises ``DeviceBusy`` where it has been otherwise too often.
        """
        begun = look.write_ms > (1 + _LONGER_SHARE) * calm.write_ms + _BEGUN_MS
        if not begun and look.alone_ms <= _SHARED * calm.alone_ms:
            self._was_calm = True
            return True
        self.disturbed += 1
        self.bursts += self._was_calm
        self._was_calm = False
        self.disturbance += min(_MOST_OF_A_LOOK, max(1.0, look.whole_ms / calm.whole_ms))
        counted = self.disturbance if self.bursts >= _FEWEST_BURSTS else self.disturbed
        if counted > _MOST_DISTURBED + _MOST_DISTURBED_SHARE * self.preludes / self.candidates:
            raise DeviceBusy(
                f"the device was busy while every process was stopped: {self.disturbed} of {self.preludes} times, and "
                f"as long as {self.disturbance:.0f} of the judge's looks at it take, its own work took it longer than "
                f"before the candidate had the shared memory, at last "
                f"{look.behind_write_ms:.3f} instead of {calm.behind_write_ms:.3f} ms behind a write and "
                f"{look.alone_ms:.3f} instead of {calm.alone_ms:.3f} ms without"
            )
        return False
