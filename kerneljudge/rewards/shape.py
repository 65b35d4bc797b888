"""The conversion of a verdict to a number, and the reasons for having none.

ClientError
└── NoReward         there is too little for a reward, through no fault of the candidate
    ├── Ungraded     there is no verdict
    └── Unmeasured   it passed, and there is no figure
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from kerneljudge.errors import ClientError
from kerneljudge.records import SubmissionRecord
from kerneljudge.terms.outcomes import Gradients, Interval, SpeedupStatus, Status, Verdict, certain_speedup

__all__ = ["NoReward", "RewardShape", "Ungraded", "Unmeasured"]

_UNMEASURED: Final = (SpeedupStatus.UNSETTLED, SpeedupStatus.NOT_VETTED)


class NoReward(ClientError):
    """There is too little for a reward, through no fault of the candidate."""


class Ungraded(NoReward):
    """A candidate has no verdict: the service is away, failed, or took too long."""


class Unmeasured(NoReward):
    """A candidate passed and has no figure that a reward could be made of."""


@dataclass(frozen=True)
class RewardShape:
    """The conversion of a verdict to a number.

    A passed candidate gets ``correct``, and ``log_speedup`` times the natural logarithm of its speedup on ``track``. At
    most ``cap`` of that second part counts. ``estimate`` says which speedup: ``low`` is the lower end of its 95 %
    interval, by which leaderboards rank, and ``point`` the middle. ``roofline`` times the share of the roofline bound
    (0 to 1) is added. The sum is never below ``least``, so that a correct kernel is worth more than a failure, however
    slow.

    A candidate that did not pass gets minus its verdict's entry in ``penalties`` (none: 0). Nothing can turn a penalty
    into a gain.

    A candidate without a speedup because it folds in or leaves out constant weights (``weights_fixed``) gets
    ``correct`` alone. ``missing_gradients`` is taken from a passed candidate without the gradients that the problem
    has, though never more than it got.

    ``ungraded`` is for candidates without a verdict, through no fault of their own. ``unmeasured`` is for passed
    candidates without a figure that counts, because the machine was too noisy, the problem is not vetted, or its
    roofline is not known. Both are ``None`` (no reward, which TRL leaves out), ``"raise"`` (``Ungraded``,
    ``Unmeasured``), or a number of your own.
    """

    correct: float = 0.3
    log_speedup: float = 1.0
    cap: float = 2.0
    roofline: float = 0.0
    least: float = 0.1
    track: Literal["inference", "training"] = "inference"
    estimate: Literal["low", "point"] = "low"
    penalties: Mapping[str, float] = field(default_factory=lambda: {Verdict.REJECTED: 1.0})
    missing_gradients: float = 0.0
    ungraded: float | Literal["raise"] | None = None
    unmeasured: float | Literal["raise"] | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.least <= self.correct:
            raise ValueError(f"0 <= least <= correct must hold, not {self.least} and {self.correct}")
        for name in ("log_speedup", "cap", "roofline", "missing_gradients"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} must not be negative")
        for name, choices in (("track", ("inference", "training")), ("estimate", ("low", "point"))):
            if getattr(self, name) not in choices:
                raise ValueError(f"{name} must be {' or '.join(choices)}, not {getattr(self, name)!r}")
        for name in ("ungraded", "unmeasured"):
            if isinstance(getattr(self, name), str) and getattr(self, name) != "raise":
                raise ValueError(f"{name} must be a number, None or 'raise', not {getattr(self, name)!r}")
        for verdict, penalty in self.penalties.items():
            if verdict not in set(Verdict) - {Verdict.PASSED}:
                raise ValueError(f"there is no failing verdict {verdict!r}")
            if not penalty >= 0:
                raise ValueError(f"the penalty for {verdict} must not be negative")

    def reward(self, record: SubmissionRecord) -> float | None:
        """Return the reward for ``record``, or else ``ungraded`` or ``unmeasured``. Raises ``NoReward`` for "raise"."""
        doubt = self.doubt(record)
        if doubt is not None:
            return self.without(doubt)
        verdict = record["verdict"]
        if verdict is None or verdict != Verdict.PASSED:
            return self.failure(verdict)
        earned = max(self.least, self.correct + self._gained(record))
        if record["gradients"] == Gradients.MISSING:
            earned = max(0.0, earned - self.missing_gradients)
        return earned

    def doubt(self, record: SubmissionRecord) -> NoReward | None:
        """Return the reason for which ``record`` says too little for a reward; ``None`` where it says enough."""
        if record["status"] != Status.DONE or record["verdict"] is None:
            return Ungraded(f"submission {record['id']} is {record['status']}: {record['message']}")
        if record["verdict"] != Verdict.PASSED:
            return None
        status = self._status(record)
        if status in _UNMEASURED:
            return Unmeasured(f"submission {record['id']} passed, and its speedup is {status}")
        # Nothing is timed in the tier ``check``, and fixed weights are the candidate's doing: there is no figure then.
        if self.roofline and status == SpeedupStatus.MEASURED and self._share(record) is None:
            return Unmeasured(f"submission {record['id']} passed, and its roofline bound is not known")
        return None

    def without(self, doubt: NoReward) -> float | None:
        """Return ``unmeasured`` or ``ungraded``, as ``doubt`` is. Raises ``doubt`` for "raise"."""
        chosen = self.unmeasured if isinstance(doubt, Unmeasured) else self.ungraded
        if chosen == "raise":
            raise doubt
        return chosen

    def failure(self, verdict: str | None) -> float:
        """Return the reward for a candidate that did not pass."""
        return 0.0 - self.penalties.get(verdict or "", 0.0)

    def _gained(self, record: SubmissionRecord) -> float:
        """Return the part of the reward for being fast."""
        speedup = self._speedup(record)
        if speedup is None:
            return 0.0
        # The lower end of a wide interval may be 0.
        logarithm = math.log(speedup) if speedup > 0 else -math.inf
        gained = min(self.cap, self.log_speedup * logarithm) if self.log_speedup else 0.0
        return gained + self.roofline * min(1.0, self._share(record) or 0.0)

    def _speedup(self, record: SubmissionRecord) -> float | None:
        inference = self.track == "inference"
        speedup = record["speedup"] if inference else record["speedup_training"]
        interval = record["speedup_interval"] if inference else record["speedup_training_interval"]
        if self.estimate == "point" or interval is None:
            return speedup
        return certain_speedup(speedup, Interval(interval["low"], interval["high"], interval["level"]))

    def _status(self, record: SubmissionRecord) -> str | None:
        # A service from before this status sends none.
        name: Literal["speedup_status", "speedup_training_status"] = (
            "speedup_status" if self.track == "inference" else "speedup_training_status"
        )
        return record.get(name)

    def _share(self, record: SubmissionRecord) -> float | None:
        bound = (record.get("roofline") or {}).get(self.track)
        return None if bound is None else bound["share"]
