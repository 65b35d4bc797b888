"""The judge's findings about one candidate, as they are sent to its supervisor."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from evaluator.evaluation import ErrorFigures, Gradients, Interval, Latency, SampleSeries, SpeedupStatus, Verdict
from evaluator.judge.timing.sampling import INFERENCE, INFERENCE_WARM, TRAINING, Measured, Track
from evaluator.roofline import Roofline

__all__ = ["HARMLESS", "Outcome"]

HARMLESS: Final = frozenset(
    {
        Verdict.PASSED,
        Verdict.LOAD_ERROR,
        Verdict.CONSTRUCT_ERROR,
        Verdict.WRONG_SHAPE,
        Verdict.WRONG_DTYPE,
        Verdict.WRONG_OUTPUT,
        Verdict.WRONG_GRADIENT,
    }
)
"""After these verdicts, nothing suggests that the candidate has affected others on the device."""


@dataclass
class Outcome:
    """The judge's findings. ``verdict`` of ``None``: the runner ended; its supervisor knows how. ``corrected``: the
    settled tracks with cold caches and a visible time correction. ``clocks_disagree``: it was rejected because too much
    time seemed to be left out; the machine may be the cause. ``device_was_busy``: it was rejected because of work on
    the device, which may be another program's."""

    verdict: Verdict | None = None
    message: str = ""
    stage: str = "loading"
    gradients: Gradients = Gradients.NOT_CHECKED
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
    roofline: dict[str, Roofline] = field(default_factory=dict)
    errors: ErrorFigures = field(default_factory=ErrorFigures)
    notes: list[str] = field(default_factory=list)
    samples: dict[str, SampleSeries] = field(default_factory=dict)
    details: dict[str, Any] = field(default_factory=dict)
    peak_memory_bytes: int | None = None
    stage_s: dict[str, float] = field(default_factory=dict)
    corrected: list[str] = field(default_factory=list)
    clocks_disagree: bool = False
    device_was_busy: bool = False

    def note_verdict(self, verdict: Verdict | None, message: str = "") -> None:
        self.verdict, self.message = verdict, message

    def note_once(self, notes: list[str]) -> None:
        self.notes.extend(note for note in notes if note not in self.notes)

    def record(self, track: Track, measured: Measured) -> None:
        """Add the figures of one track; for unsettled figures, only the reason."""
        if measured.corrected and track.cold and not measured.unsettled:
            self.corrected.append(track.title)
        self.samples[track.name] = measured.samples
        self.notes.extend(measured.notes)
        self.details.setdefault("tracks", {})[track.name] = measured.details
        status = SpeedupStatus.UNSETTLED if measured.unsettled else SpeedupStatus.MEASURED
        if track is INFERENCE:
            self.speedup_status = status
        elif track is not INFERENCE_WARM:
            self.speedup_training_status = status
        if measured.unsettled:
            self.notes.append(f"{track.title}: no figure, for the machine was too noisy to tell: {measured.unsettled}")
        elif track is INFERENCE:
            self.speedup, self.speedup_interval = measured.speedup, measured.interval
            self.latency_ms = measured.latency
        elif track is INFERENCE_WARM:
            self.speedup_warm, self.speedup_warm_interval = measured.speedup, measured.interval
            self.latency_warm_ms = measured.latency
        else:
            self.speedup_training, self.speedup_training_interval = measured.speedup, measured.interval
            self.latency_training_ms = measured.latency

    def record_fixed_training(self, measured: Measured) -> None:
        """Keep the samples of the training track, and no figure: the weights are fixed there."""
        self.samples[TRAINING.name] = measured.samples
        self.speedup_training_status = SpeedupStatus.WEIGHTS_FIXED

    def drop_figures(self) -> None:
        """Drop all figures, because the candidate did not pass."""
        self.speedup = self.speedup_interval = self.speedup_status = None
        self.speedup_warm = self.speedup_warm_interval = None
        self.speedup_training = self.speedup_training_interval = self.speedup_training_status = None
        self.roofline_share = None
        self.roofline = {}
        self.corrected = []
        self.latency_ms = self.latency_warm_ms = self.latency_training_ms = None
