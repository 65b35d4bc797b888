"""Whether a device is as calm before each call as it was before the candidate had the shared memory.

The judge times its own last steps before a call (the *prelude*) while every process is stopped. Work that a candidate
has left on the device delays them, and so does a processor that has become slower: it is the judge's processor that
asks for each step and waits for it. On a machine where four GPUs were at work, preludes of 0.14 ms took up to 0.43 ms,
for whole evaluations. So a prelude that took longer is followed by a *look*: the same steps and some milliseconds of
work more, asked for ahead, by the device's own clock. That knows nothing of the processor, and takes longer only where
the device did something else in between.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from evaluator.judge.verify import Violation

__all__ = ["Calmness"]

_LONGER_SHARE: Final = 0.05
_LONGER_MS: Final = 0.08
"""Half of what a device takes at the least to do something for another process in between."""
_MOST_DISTURBED: Final = 10
_MOST_DISTURBED_SHARE: Final = 0.3


@dataclass
class Calmness:
    """What came of the preludes of one evaluation. ``late``: how many took longer than at first; ``disturbed``: how
    many of these because of the device."""

    preludes: int = 0
    late: int = 0
    disturbed: int = 0

    def in_time(self, prelude_ms: float, calm_ms: float) -> bool:
        """Whether a prelude took no longer than ``calm_ms``, what it took at first; else the device is to be looked
        at."""
        self.preludes += 1
        late = _took_longer(prelude_ms, calm_ms)
        self.late += late
        return not late

    def undisturbed(self, look_ms: float, calm_ms: float) -> bool:
        """Whether a look at the device took no longer than ``calm_ms``, what it took at first; else the prelude is to
        be repeated.

        Raises ``Violation`` where it has been otherwise too often.
        """
        if not _took_longer(look_ms, calm_ms):
            return True
        self.disturbed += 1
        if self.disturbed > _MOST_DISTURBED + _MOST_DISTURBED_SHARE * self.preludes:
            raise Violation(
                f"the device was busy while every process was stopped: {self.disturbed} of {self.preludes} times it "
                f"took longer for the judge's own steps than before the candidate had the shared memory, at last "
                f"{look_ms:.3f} instead of {calm_ms:.3f} ms"
            )
        return False


def _took_longer(milliseconds: float, calm_ms: float) -> bool:
    return milliseconds > (1 + _LONGER_SHARE) * calm_ms + _LONGER_MS
