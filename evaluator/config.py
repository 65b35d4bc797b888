"""The settings of an evaluation, resolved once and then only read."""

from __future__ import annotations

from dataclasses import dataclass, field

from kerneljudge.terms.choices import (
    BASELINES,
    DEVICE_KINDS,
    IEEE,
    LOWER_PRECISIONS,
    PLAIN_BASELINES,
    PRECISIONS,
    TIERS,
    checked_tier,
)
from kerneljudge.terms.limits import SETTABLE_LIMITS, Limits, checked_limits, limits_text, parse_limits
from kerneljudge.terms.rules import NO_RULES, Rules

__all__ = [
    "BASELINES",
    "DEVICE_KINDS",
    "IEEE",
    "LOWER_PRECISIONS",
    "PLAIN_BASELINES",
    "PRECISIONS",
    "SETTABLE_LIMITS",
    "TIERS",
    "EvalConfig",
    "Limits",
    "SamplingPlan",
    "checked_limits",
    "checked_tier",
    "limits_text",
    "parse_limits",
]


@dataclass(frozen=True)
class SamplingPlan:
    """The number of calls. Trials verify; samples are timed (and verified as well)."""

    trials: int = 5
    """As many as there are kinds of inputs. With more than one, exact zeros add one more, as for gradients."""
    gradient_trials: int = 3
    min_samples: int = 6
    """An even number, so that both sides are first as often."""
    max_samples: int = 60
    """0: nothing is timed."""
    half_width: float = 0.005
    """Sampling stops when the speedup's interval is within ± this share of the speedup."""
    warm_samples: int = 10
    """Pairs on warm caches, beside those on cold ones; 0: none."""
    budget_s: float = 4.0
    """Seconds after which the sampling of one track ends, once it has ``least_samples``."""
    least_samples: int = 3
    settles: bool = True
    """Whether figures are measured again, with more pairs and then with new processes, where they were corrected or are
    too uncertain to be reported. Doubts about the clocks, which decide a verdict, are looked into in either case."""

    @classmethod
    def usual(cls, device_kind: str, size: str, tier: str = "full") -> SamplingPlan:
        """The plan of an evaluation in one of ``TIERS``. The trials are the same in each, so that verdicts are alike.

        Other programs keep a CPU's intervals from becoming as narrow as a GPU's, however long the sampling. ``smoke``
        on a CPU is for a quick check that the candidate works at all: the answer comes in a moment.
        """
        if tier == "check":
            return cls(max_samples=0, warm_samples=0)
        if device_kind == "cpu" and size == "smoke":
            return cls(half_width=0.02, min_samples=5, max_samples=5, warm_samples=0, budget_s=0.5)
        if tier == "quick":
            half_width = 0.05 if device_kind == "cpu" else 0.02
            return cls(half_width=half_width, min_samples=6, max_samples=12, warm_samples=0, budget_s=1.0)
        if device_kind == "cpu":
            return cls(half_width=0.02, min_samples=10, max_samples=30, budget_s=8.0)
        return cls()


@dataclass(frozen=True)
class EvalConfig:
    """One evaluation's settings.

    ``device`` is ``cpu``, ``cuda`` or ``cuda:N``. ``size`` names one of the problem's sizes. ``require_gradients`` of
    ``None`` leaves it to the problem's policy. ``given_inputs_only``: use only inputs as ``get_inputs`` makes them. The
    result is no verdict to rank by, but the verdict of a judge without inputs of its own. With ``compare_compiled``, a
    candidate that passed is also compared with the reference under ``torch.compile``. ``rules`` are those of the
    caller, besides the problem's.
    """

    device: str = "cpu"
    size: str = "full"
    precision: str = "float32"
    baseline: str = "eager"
    require_gradients: bool | None = None
    given_inputs_only: bool = False
    compare_compiled: bool = False
    limits: Limits = field(default_factory=Limits)
    sampling: SamplingPlan = field(default_factory=SamplingPlan)
    rules: Rules = NO_RULES

    def __post_init__(self) -> None:
        if self.device_kind not in DEVICE_KINDS:
            raise ValueError(f"device must be cpu, cuda or cuda:N, not {self.device!r}")
        if self.precision not in PRECISIONS:
            raise ValueError(f"precision must be one of {', '.join(PRECISIONS)}, not {self.precision!r}")
        if self.baseline not in BASELINES:
            raise ValueError(f"baseline must be one of {', '.join(BASELINES)}, not {self.baseline!r}")

    @property
    def device_kind(self) -> str:
        return self.device.partition(":")[0]
