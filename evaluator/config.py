"""The settings of an evaluation, resolved once and then only read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from evaluator.source_rules.rules import NO_RULES, Rules

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

DEVICE_KINDS: Final = ("cpu", "cuda")
PRECISIONS: Final = ("float32", "float16", "bfloat16")
IEEE: Final = "ieee"
BASELINES: Final = ("eager", IEEE, "compile", "compile-max-autotune", "tf32", "float16", "bfloat16")
"""Divisors of a speedup: the reference as it is, without TF32, by ``torch.compile``, or in another precision."""
PLAIN_BASELINES: Final = ("eager", IEEE)
"""Baselines that run the reference as it is written. ``ieee``: both sides begin without TF32 (``Problem.tf32_in``)."""

LOWER_PRECISIONS: Final = ("tf32", "float16", "bfloat16")
"""Baselines that compute less exactly than the problem asks for: only where the problem allows them."""

TIERS: Final = ("check", "quick", "full")
"""Depths of grading, the shallowest first: no timing, a rough figure, and the figure that leaderboards rank."""

_DAY_S: Final = 86400.0
_MOST: Final = {
    **dict.fromkeys(
        ("build_s", "late_build_s", "load_s", "construct_s", "call_s", "call_floor_s", "total_s"),
        _DAY_S,
    ),
    "call_factor": 1e9,
    "device_memory_bytes": 2**50,
    "memory_bytes": 2**50,
    "disk_bytes": 2**50,
    "processes": 2**22,
    "log_bytes": 2**30,
}
"""The bounds of each limit. NaN is within none."""
SETTABLE_LIMITS: Final = (
    "build_s",
    "late_build_s",
    "load_s",
    "construct_s",
    "call_s",
    "call_factor",
    "call_floor_s",
    "total_s",
)
"""Limits that a machine, a problem and a caller may set."""


@dataclass(frozen=True)
class Limits:
    """Wall-clock and memory limits of one evaluation. Times in seconds, memory in bytes.

    - ``total_s`` bounds the whole evaluation: one that has not ended by then is ``timeout``. A second evaluation,
      made because the first one seemed to leave time out, gets it anew.
    - ``device_memory_bytes`` of ``None`` stands for the device's free memory, ``memory_bytes`` of ``None`` for half
      of the machine's memory.
    - ``late_build_s`` is added to constructing and to the first two calls with and without a backward. There may be
      compilation in them that could not be found before: ``torch.compile`` compiles in the first call, and may record
      graphs in the second.
    - Later calls may take ``call_factor`` times as long as the baseline's, but ``call_floor_s`` in any case and
      ``call_s`` at the most.
    - ``disk_bytes`` is for all files that the candidate writes.
    - ``processes`` counts threads, too; ``None`` stands for the need of OpenMP, ``torch.compile`` and the driver on
      as many processors as the machine has.
    """

    build_s: float = 600.0
    late_build_s: float = 180.0
    load_s: float = 120.0
    construct_s: float = 120.0
    call_s: float = 60.0
    call_factor: float = 1000.0
    call_floor_s: float = 20.0
    total_s: float = 1800.0
    device_memory_bytes: int | None = None
    memory_bytes: int | None = None
    disk_bytes: int = 2**30
    processes: int | None = None
    log_bytes: int = 64 * 1024

    def __post_init__(self) -> None:
        for name, most in _MOST.items():
            value = getattr(self, name)
            if value is not None and not 0 <= value <= most:
                raise ValueError(f"{name} must be between 0 and {most:g}, not {value!r}")

    def lowered(self, to: Mapping[str, float]) -> Limits:
        """Return these limits, with none above the value that ``to`` has by its name."""
        return replace(self, **{name: min(getattr(self, name), value) for name, value in to.items()})

    def later_call_s(self, baseline_s: float | None) -> float:
        """Return the limit of a call without compilation, in seconds.

        ``baseline_s``: the duration of the baseline's call; ``None`` where it is not known yet.
        """
        if baseline_s is None:
            return self.call_s
        return min(self.call_s, max(self.call_floor_s, self.call_factor * baseline_s))


def parse_limits(text: str) -> dict[str, float]:
    """Parse ``call_s=120, total_s=900`` into fields of ``Limits``; empty text has none. Raises ``ValueError``."""
    found: dict[str, float] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, sign, value = (word.strip() for word in part.partition("="))
        if not sign:
            raise ValueError(f"a limit is given as NAME=VALUE, not {part!r}")
        found[name] = float(value)
    return checked_limits(found)


def limits_text(values: Mapping[str, float]) -> str:
    """Write ``values`` as ``parse_limits`` takes them, in one order; whole numbers without a point."""
    return ",".join(f"{name}={value:.17g}" for name, value in sorted(values.items()))


def checked_limits(values: Mapping[str, Any]) -> dict[str, float]:
    """Return ``values``, by the names of ``SETTABLE_LIMITS``. Raises ``ValueError``."""
    for name, value in values.items():
        if name not in SETTABLE_LIMITS:
            raise ValueError(f"there is no limit {name!r}; there are {', '.join(SETTABLE_LIMITS)}")
        if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
            raise ValueError(f"{name} must be a number above 0, not {value!r}")
    Limits(**values)
    return dict(values)


def checked_tier(name: str) -> str:
    """Return ``name``, which is one of ``TIERS``. Raises ``ValueError`` where it is not."""
    if name not in TIERS:
        raise ValueError(f"tier must be one of {', '.join(TIERS)}, not {name!r}")
    return name


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
