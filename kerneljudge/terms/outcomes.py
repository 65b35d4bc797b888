"""The outcomes of a submission: its state, its verdict, and whether it has figures."""

from __future__ import annotations

from dataclasses import dataclass

from kerneljudge.terms.enumeration import StrEnum

__all__ = ["Gradients", "Interval", "SpeedupStatus", "Status", "Verdict", "certain_speedup"]


class Status(StrEnum):
    """The state of a submission. ``failed`` means that *we* failed, not the candidate."""

    QUEUED = "queued"
    BUILDING = "building"
    EVALUATING = "evaluating"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def final(self) -> bool:
        return self in (Status.DONE, Status.FAILED, Status.CANCELLED)


class Verdict(StrEnum):
    """The outcome of an evaluation. Exactly one; the first stage that fails decides."""

    PASSED = "passed"
    INVALID_SOURCE = "invalid_source"
    LOAD_ERROR = "load_error"
    COMPILE_ERROR = "compile_error"
    CONSTRUCT_ERROR = "construct_error"
    RUNTIME_ERROR = "runtime_error"
    TIMEOUT = "timeout"
    OUT_OF_MEMORY = "out_of_memory"
    WRONG_SHAPE = "wrong_shape"
    WRONG_DTYPE = "wrong_dtype"
    WRONG_OUTPUT = "wrong_output"
    WRONG_GRADIENT = "wrong_gradient"
    REJECTED = "rejected"


class Gradients(StrEnum):
    """The finding about the candidate's gradients.

    ``partial``: every gradient that could be compared matches. But some parameter of the reference has no counterpart
    in the candidate (say, weights folded together while constructing). Its gradient could not be compared. It passes
    for inference and is not admitted to the training track.
    """

    MATCH = "match"
    PARTIAL = "partial"
    MISMATCH = "mismatch"
    MISSING = "missing"
    NOT_APPLICABLE = "not_applicable"
    NOT_CHECKED = "not_checked"


class SpeedupStatus(StrEnum):
    """Whether a track has a figure. ``None`` stands in its place where there is nothing to measure.

    ``unsettled``: the machine was too noisy for a figure. ``not_vetted``: it is not yet known that the judge can tell
    right from wrong answers to the problem. Neither says anything about the candidate: there is no speedup, which is
    not a speedup of 0.

    ``weights_fixed``: the candidate is right with the parameters and buffers that it was constructed with. Some of them
    are the same under every seed (a norm's ones and zeros, say). With other values of these it is wrong, or cannot take
    any: they may have been folded in or left out. ``details["parameters"]["fixed"]`` names them. On the training track
    alone: the candidate is wrong once its weights, ``details["parameters"]["kept"]``, have changed between two calls.
    """

    MEASURED = "measured"
    UNSETTLED = "unsettled"
    NOT_VETTED = "not_vetted"
    WEIGHTS_FIXED = "weights_fixed"


@dataclass(frozen=True)
class Interval:
    """A two-sided interval at ``level`` (0.95 unless said otherwise)."""

    low: float
    high: float
    level: float = 0.95


def certain_speedup(speedup: float | None, interval: Interval | None) -> float | None:
    """Return the lower end of the interval, or the speedup where there is none.

    A candidate is faster than ``p`` if this is above ``p``, and ranks are by it.
    """
    return speedup if speedup is None or interval is None else interval.low
