"""The result of an evaluation: the immutable record that everything else stores, shows and ranks.

A bad candidate is a *value* here (``Evaluation(verdict=Verdict.COMPILE_ERROR, ...)``); only our own faults are
exceptions (see ``evaluator.errors``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from evaluator.flags import Flag
from evaluator.roofline import Roofline
from kerneljudge.terms.outcomes import Gradients, Interval, SpeedupStatus, Status, Verdict, certain_speedup

__all__ = [
    "ErrorFigures",
    "Evaluation",
    "Gradients",
    "Interval",
    "Latency",
    "SampleSeries",
    "SpeedupStatus",
    "Status",
    "TrackFigures",
    "Verdict",
    "certain_speedup",
]


@dataclass(frozen=True)
class SampleSeries:
    """Raw samples of one track, in the order in which they were taken.

    Sample ``i`` of the candidate is paired with sample ``i`` of the baseline. ``*_device_ms`` is the runner's own
    figure (CUDA events, or its monotonic clock on a CPU); ``*_outer_ms`` is the judge's clock around the same call.
    ``*_forward_ms`` is the forward's share of the runner's figure, and empty where the call has no backward.
    """

    candidate_device_ms: tuple[float, ...]
    baseline_device_ms: tuple[float, ...]
    candidate_outer_ms: tuple[float, ...]
    baseline_outer_ms: tuple[float, ...]
    order: tuple[str, ...]
    candidate_forward_ms: tuple[float, ...] = ()
    baseline_forward_ms: tuple[float, ...] = ()


@dataclass(frozen=True)
class Latency:
    """Median latencies in milliseconds; ``*_outer`` is the judge's clock around the same calls."""

    candidate: float
    baseline: float
    candidate_outer: float
    baseline_outer: float


@dataclass(frozen=True)
class ErrorFigures:
    """Errors against the float64 reference, over every element of every call that was compared.

    ``max_rel`` is the error divided by the magnitude of the reference's element, or by the absolute tolerance where
    that is more. ``reference_max_rel`` is the same figure for the reference itself, run in the problem's own precision.
    """

    max_abs: float | None = None
    max_rel: float | None = None
    reference_max_rel: float | None = None


@dataclass(frozen=True, kw_only=True)
class TrackFigures:
    """The figures of all tracks; without arguments, of a candidate that has none.

    - ``speedup`` and ``latency_ms`` are of a forward on cold caches, ``*_training`` of forward and backward together.
      ``*_warm`` are of a forward on warm caches, where that makes a difference.
    - ``speedup_status`` and ``speedup_training_status`` are ``measured`` exactly where there is a figure.
    - ``roofline``: by track, for candidates that passed. ``roofline_share``: the inference track's share.
    - ``shapes``: the figures of the problem's timed shapes, by name. ``*_mean`` is the geometric mean of a speedup over
      the size and these; there is none where any figure is missing.
    """

    speedup: float | None = None
    speedup_interval: Interval | None = None
    speedup_status: SpeedupStatus | None = None
    speedup_training: float | None = None
    speedup_training_interval: Interval | None = None
    speedup_training_status: SpeedupStatus | None = None
    speedup_warm: float | None = None
    speedup_warm_interval: Interval | None = None
    latency_ms: Latency | None = None
    latency_warm_ms: Latency | None = None
    latency_training_ms: Latency | None = None
    roofline_share: float | None = None
    roofline: Mapping[str, Roofline] = field(default_factory=dict)
    speedup_mean: float | None = None
    speedup_mean_interval: Interval | None = None
    speedup_training_mean: float | None = None
    speedup_training_mean_interval: Interval | None = None
    shapes: Mapping[str, TrackFigures] = field(default_factory=dict)


@dataclass(frozen=True)
class Evaluation(TrackFigures):
    """The immutable record of one run of one candidate on one problem and device.

    - ``details["tracks"]`` has the quartiles of each track, and the times of forward and backward.
    - ``details["rules"]`` has the rules about the source that applied, of the problem and of the request together.
      ``details["broken_rules"]`` has the breaks of a candidate that was rejected for them, each with rule, line and
      message.
    - ``details["device_fault"]``: the kind of fault on the device that the candidate ended with, if it did.
    - ``speedup_compiled`` is the speedup over the reference under ``torch.compile``, from a ratio that was measured
      once for it (see ``evaluator.results.compiled_baselines``).
    - ``flags``: advice about the source; no verdict depends on it.
    - ``samples``: by track; those of a timed shape by the names of track and shape, as ``inference/ragged``.
    - ``peak_memory_bytes``: the most device memory of judge, candidate, baseline and the processes that wait for the
      next evaluation, all together. It is read after calls that were compared as a whole and after each track
      (allocators keep their memory). On a CPU it is the growth of the machine's memory in use. It is unknown where
      several candidates were evaluated together, because it cannot be attributed.
    """

    verdict: Verdict
    message: str
    problem: str
    problem_version: str
    device: str
    size: str
    precision: str
    baseline: str = "eager"
    gradients: Gradients = Gradients.NOT_CHECKED
    speedup_compiled: float | None = None
    speedup_compiled_interval: Interval | None = None
    errors: ErrorFigures = field(default_factory=ErrorFigures)
    hints: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    flags: tuple[Flag, ...] = ()
    log: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)
    samples: Mapping[str, SampleSeries] = field(default_factory=dict)
    environment: Mapping[str, Any] = field(default_factory=dict)
    stage_s: Mapping[str, float] = field(default_factory=dict)
    peak_memory_bytes: int | None = None

    def __post_init__(self) -> None:
        if self.verdict is not Verdict.PASSED and self.speedup is not None:
            raise ValueError(f"a speedup goes with a passed evaluation, not with {self.verdict}")
        for figure, name in ((self.speedup, "speedup_status"), (self.speedup_training, "speedup_training_status")):
            status = getattr(self, name)
            if figure is not None and status is None:
                # Records that are older than the status have none, and a figure is enough to set it.
                object.__setattr__(self, name, SpeedupStatus.MEASURED)
            elif (figure is not None) is not (status is SpeedupStatus.MEASURED):
                raise ValueError(f"{name} is {status}, and the figure {figure}")
            elif status is not None and not self.passed:
                raise ValueError(f"{name} goes with a passed evaluation, not with {self.verdict}")

    @property
    def passed(self) -> bool:
        return self.verdict is Verdict.PASSED

    @property
    def unsettled(self) -> bool:
        """Whether the machine was too noisy for a figure of one of the ranked tracks, at the size or a timed shape."""
        return any(
            SpeedupStatus.UNSETTLED in (each.speedup_status, each.speedup_training_status)
            for each in (self, *self.shapes.values())
        )

    def without_speedup(self, status: SpeedupStatus) -> Evaluation:
        """Return the record without any performance figure, for the reason ``status``; the raw samples stay.

        A check has no figure in any case. It gets the status all the same, because its pass may say as little.
        """
        if not self.passed:
            return self
        timed = self.speedup_status is not None or self.speedup_training_status is not None
        trained = self.speedup_training_status is not None if timed else self.gradients is Gradients.MATCH
        none = TrackFigures(
            speedup_status=status if self.speedup_status is not None or not timed else None,
            speedup_training_status=status if trained else None,
        )
        return replace(self, **vars(none), speedup_compiled=None, speedup_compiled_interval=None)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON-ready data; ``Evaluation.from_dict`` takes it back."""
        return {**asdict(self), "flags": [flag.to_dict() for flag in self.flags]}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Evaluation:
        """Inverse of ``to_dict``. Raises ``KeyError`` or ``ValueError`` on foreign data."""
        fields = dict(data)
        fields["verdict"] = Verdict(fields["verdict"])
        fields["gradients"] = Gradients(fields["gradients"])
        fields = _typed(fields)
        fields["shapes"] = {name: TrackFigures(**_typed(each)) for name, each in fields.get("shapes", {}).items()}
        fields["errors"] = ErrorFigures(**fields["errors"])
        fields["hints"] = tuple(fields["hints"])
        fields["notes"] = tuple(fields["notes"])
        # Records that are older than flags have none.
        fields["flags"] = tuple(Flag.from_dict(flag) for flag in fields.get("flags", ()))
        fields["samples"] = {
            track: SampleSeries(**{name: tuple(values) for name, values in series.items()})
            for track, series in fields["samples"].items()
        }
        return cls(**fields)


def _typed(plain: Mapping[str, Any]) -> dict[str, Any]:
    """Return plain figures with their types. Records that are older than rooflines have none."""
    fields = dict(plain)
    for name, value in plain.items():
        if value is None:
            continue
        if name in ("speedup_status", "speedup_training_status"):
            fields[name] = SpeedupStatus(value)
        elif name.endswith("_interval"):
            fields[name] = Interval(**value)
        elif name.startswith("latency_"):
            fields[name] = Latency(**value)
    fields["roofline"] = Roofline.all_from_dicts(fields.get("roofline", {}))
    return fields
