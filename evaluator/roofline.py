"""The roofline model: a device's least time for a problem, and a candidate's share of it. Torch-free.

The roofline is that of Williams, Waterman and Patterson (Roofline: an insightful visual performance model for multicore
architectures, Communications of the ACM 52(4), 2009). Work with ``bytes`` of traffic and ``operations`` takes at least
the longer of ``bytes / (bytes per s)`` and ``operations / (operations per s)``. Both rates are measured on the device
itself, so they are rates that it has reached.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

__all__ = ["Bound", "PeakRates", "Roofline", "Work", "bound", "share_of_roofline"]

Limit = Literal["memory", "compute"]


@dataclass(frozen=True)
class Work:
    """The least work of one call of a track.

    ``bytes``: each byte that has to be read or written, once. ``operations``: additions and multiplications of the
    reference's matrix products, convolutions and attentions (one of each counts 2).
    """

    bytes: int
    operations: int

    @property
    def intensity(self) -> float:
        """Operations per byte."""
        return self.operations / self.bytes if self.bytes else 0.0


@dataclass(frozen=True)
class PeakRates:
    """The highest rates that a device was seen to reach.

    ``operations_per_s`` by precision: ``float32`` (exact), ``tf32`` where the device has it, ``float16``, ``bfloat16``,
    ``float64``; a precision that could not be measured is left out.
    """

    bytes_per_s: float
    operations_per_s: Mapping[str, float]


@dataclass(frozen=True)
class Bound:
    """The least time of ``Work``, in milliseconds.

    ``compute_ms`` is ``None`` where the precision's rate is not known: the bound is then that of memory alone.
    """

    bound_ms: float
    limited_by: Limit
    memory_ms: float
    compute_ms: float | None
    intensity: float


@dataclass(frozen=True)
class Roofline:
    """A track's bound, the figures that it was computed from, and the share of it that a candidate reached.

    ``share``: ``bound_ms`` / the candidate's latency. ``operations_per_s`` is that of the problem's precision.
    """

    bound_ms: float
    limited_by: Limit
    share: float
    memory_ms: float
    compute_ms: float | None
    intensity: float
    bytes: int
    operations: int
    bytes_per_s: float
    operations_per_s: float | None

    @classmethod
    def all_from_dicts(cls, tracks: Mapping[str, Mapping[str, Any]]) -> dict[str, Roofline]:
        """Rooflines by track, from plain data."""
        return {track: cls(**fields) for track, fields in tracks.items()}

    def note(self, track: str) -> str | None:
        """Return a note about a share above 1; ``None`` for any other share."""
        if self.share <= 1.0:
            return None
        return (
            f"{track}: {1 / self.share:.2f} of the roofline bound of {self.bound_ms:.4g} ms ({self.limited_by}): the "
            "candidate works from cache, in another precision, or with fewer operations than the reference"
        )


def bound(work: Work, peak_rates: PeakRates, precision: str) -> Bound:
    """Return the least time for ``work`` in ``precision`` under ``peak_rates``. Raises ``ValueError`` for no rate."""
    operations_per_s = peak_rates.operations_per_s.get(precision)
    for rate in (peak_rates.bytes_per_s, *([] if operations_per_s is None else [operations_per_s])):
        if not rate > 0:
            raise ValueError(f"a ceiling is a positive rate, not {rate}")
    memory_ms = 1000 * work.bytes / peak_rates.bytes_per_s
    compute_ms = None if operations_per_s is None else 1000 * work.operations / operations_per_s
    by_compute = compute_ms is not None and compute_ms > memory_ms
    return Bound(
        bound_ms=max(memory_ms, compute_ms or 0.0),
        limited_by="compute" if by_compute else "memory",
        memory_ms=memory_ms,
        compute_ms=compute_ms,
        intensity=work.intensity,
    )


def share_of_roofline(work: Work, peak_rates: PeakRates, precision: str, latency_ms: float) -> Roofline:
    """Compare a candidate with ``latency_ms`` to the roofline."""
    least = bound(work, peak_rates, precision)
    return Roofline(
        bound_ms=least.bound_ms,
        limited_by=least.limited_by,
        share=least.bound_ms / latency_ms,
        memory_ms=least.memory_ms,
        compute_ms=least.compute_ms,
        intensity=least.intensity,
        bytes=work.bytes,
        operations=work.operations,
        bytes_per_s=peak_rates.bytes_per_s,
        operations_per_s=peak_rates.operations_per_s.get(precision),
    )
