"""The judge's findings about one candidate, as they are sent to its supervisor."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from evaluator.evaluation import ErrorFigures, Gradients, SampleSeries, SpeedupStatus, TrackFigures, Verdict
from evaluator.judge.timing.figures import Measured
from evaluator.judge.timing.track import INFERENCE, INFERENCE_WARM, TRAINING, Track
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
    figures: TrackFigures = field(default_factory=TrackFigures)
    errors: ErrorFigures = field(default_factory=ErrorFigures)
    notes: list[str] = field(default_factory=list)
    samples: dict[str, SampleSeries] = field(default_factory=dict)
    details: dict[str, Any] = field(default_factory=dict)
    peak_memory_bytes: int | None = None
    stage_s: dict[str, float] = field(default_factory=dict)
    corrected: list[str] = field(default_factory=list)
    clocks_disagree: bool = False
    device_was_busy: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, with the figures beside the other fields as in ``Evaluation.to_dict``."""
        found = asdict(self)
        return {**found.pop("figures"), **found}

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
            self._change_figures(speedup_status=status)
        elif track is not INFERENCE_WARM:
            self._change_figures(speedup_training_status=status)
        speedup, interval, latency = measured.speedup, measured.interval, measured.latency
        if measured.unsettled:
            self.notes.append(f"{track.title}: no figure, for the machine was too noisy to tell: {measured.unsettled}")
        elif track is INFERENCE:
            self._change_figures(speedup=speedup, speedup_interval=interval, latency_ms=latency)
        elif track is INFERENCE_WARM:
            self._change_figures(speedup_warm=speedup, speedup_warm_interval=interval, latency_warm_ms=latency)
        else:
            self._change_figures(
                speedup_training=speedup, speedup_training_interval=interval, latency_training_ms=latency
            )

    def record_roofline(self, track: Track, found: Roofline) -> None:
        """Add the roofline of one track."""
        self._change_figures(roofline={**self.figures.roofline, track.name: found})
        if track is INFERENCE:
            self._change_figures(roofline_share=found.share)

    def record_fixed_training(self, measured: Measured) -> None:
        """Keep the samples of the training track, and no figure: the weights are fixed there."""
        self.samples[TRAINING.name] = measured.samples
        self._change_figures(speedup_training_status=SpeedupStatus.WEIGHTS_FIXED)

    def drop_figures(self) -> None:
        """Drop all figures, because the candidate did not pass."""
        self.figures = TrackFigures()
        self.corrected = []

    def _change_figures(self, **changes: Any) -> None:
        self.figures = replace(self.figures, **changes)
