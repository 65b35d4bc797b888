"""Whether a device is as calm before each call as it was before the candidate had the shared memory.

The judge times its own last steps before a call (the *prelude*) while every process is stopped. Work that a candidate
has left on the device delays them, and so does a processor that is slower to wake than it was: it is the judge's
processor that asks for each step and waits for it. The two differ in size. A device that turns to another process in
between takes 0.16 ms at the least for it, and does so at each of the prelude's waits; what a processor adds was
0.25 ms at the most in a thousand evaluations on H200s, and stays for seconds.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final

from evaluator.errors import InfrastructureFault
from evaluator.judge.verify import Violation

__all__ = ["Calmness"]

_DISTURBED_SHARE: Final = 0.05
_DISTURBED_MS: Final = 0.08
"""Half of what a device takes at the least to do something for another process in between."""
_MOST_DISTURBED: Final = 10
_MOST_DISTURBED_SHARE: Final = 0.3
_LATEST: Final = 20
_HIGH: Final = 0.8
"""Which of the latest preludes decides what has become of the device: but for the slowest fifth, the slowest."""
_SHIFTED_SHARE: Final = 0.15
_SHIFTED_MS: Final = 0.15
"""So much longer may preludes become for good: less than what a device adds that works for somebody else."""
_BUSY_MS: Final = 0.45
"""What a device adds at the least that turns to another process at each of the three waits of a prelude."""


@dataclass
class Calmness:
    """The preludes of one evaluation, as they come in. ``preludes``: how many; ``disturbed``: how many took longer."""

    preludes: int = 0
    disturbed: int = 0
    shift_ms: float = 0.0
    """How much longer preludes take by now than they did at first, for all that is known of no fault of anybody's."""
    _counted: int = 0
    _counted_disturbed: int = 0
    _latest_ms: deque[float] = field(default_factory=lambda: deque(maxlen=_LATEST))

    def note(self, prelude_ms: float, calm_ms: float) -> bool:
        """Whether a prelude was calm, where ``calm_ms`` is what it took at first; one that was not is to be repeated.

        Where too many were not, the latest decide: if they take a little longer, that is what calm is from now on.
        Raises ``Violation`` where they take so much longer that the device works for somebody else, and
        ``InfrastructureFault`` where that cannot be told.
        """
        longer_ms = prelude_ms - calm_ms
        disturbed = longer_ms > _DISTURBED_SHARE * calm_ms + _DISTURBED_MS + self.shift_ms
        self.preludes += 1
        self.disturbed += disturbed
        self._counted += 1
        self._counted_disturbed += disturbed
        self._latest_ms.append(longer_ms)
        if self._counted_disturbed > _MOST_DISTURBED + _MOST_DISTURBED_SHARE * self._counted:
            self._learn_anew(calm_ms)
        return not disturbed

    def _learn_anew(self, calm_ms: float) -> None:
        shift_ms = sorted(self._latest_ms)[int(_HIGH * len(self._latest_ms))]
        if shift_ms > _SHIFTED_SHARE * calm_ms + _SHIFTED_MS:
            message = (
                f"{self.disturbed} of {self.preludes} times the judge's own steps took longer than before the "
                f"candidate had the shared memory, of late {calm_ms + shift_ms:.3f} instead of {calm_ms:.3f} ms"
            )
            if shift_ms > _SHIFTED_SHARE * calm_ms + _BUSY_MS:
                raise Violation(f"the device was busy while every process was stopped: {message}")
            raise InfrastructureFault(f"the device, or the processor, has become slower: {message}")
        self.shift_ms = max(self.shift_ms, shift_ms)
        self._counted = self._counted_disturbed = 0
