"""The speedup of a reference under ``torch.compile``: measured once per problem, device and torch, and kept.
Torch-free.

The kept figure is a ratio of two latencies measured in turn, so it holds as long as nothing about the device changes. A
change shows in the latency of the eager reference, which is measured beside every candidate.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any, Final

from evaluator.candidates.candidate import Candidate, parse_candidate
from evaluator.config import EvalConfig, SamplingPlan
from evaluator.errors import EvaluationCancelled, EvaluatorError, InfrastructureFault, ProblemError
from evaluator.evaluation import Evaluation, Interval
from evaluator.files import write_json
from evaluator.problems.problem import Problem

__all__ = ["CompiledBaseline", "CompiledBaselines"]

_DRIFTED: Final = 0.1
_DRIFTED_MS: Final = 0.02
_REFERENCE: Final = "from model import Model\n\n\nclass ModelNew(Model):\n    pass\n"
_DEPENDS_ON: Final = ("device_name", "driver", "cuda", "torch", "cores")


@dataclass(frozen=True)
class CompiledBaseline:
    """``ratio``: latency of the compiled reference / latency of the eager one, with its interval.

    ``eager_ms``: the eager latency at that measurement. ``failure``: why there is no ratio, empty where there is one.
    """

    ratio: float | None
    interval: Interval | None
    eager_ms: float
    failure: str = ""

    def drifted(self, eager_ms: float) -> bool:
        """Whether the latency of the eager reference differs from the kept one."""
        return abs(eager_ms - self.eager_ms) > _DRIFTED * self.eager_ms + _DRIFTED_MS


class CompiledBaselines:
    """The compiled baselines that are kept in ``folder``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def compare(
        self,
        evaluation: Evaluation,
        problem: Problem,
        config: EvalConfig,
        evaluate: Callable[[Candidate, EvalConfig], Evaluation],
    ) -> Evaluation:
        """Return ``evaluation``, measured against the eager reference, with its speedup over the compiled one.

        ``evaluate`` measures a candidate, where no ratio is kept, or the kept one has drifted.
        """
        if evaluation.speedup is None or evaluation.speedup_interval is None or evaluation.latency_ms is None:
            return evaluation
        path = self._path(problem, config, evaluation.environment)
        eager_ms = evaluation.latency_ms.baseline
        known = _read(path)
        if known is None or known.drifted(eager_ms):
            try:
                known = _measure(config, evaluate)
            except ProblemError as error:
                known = CompiledBaseline(None, None, eager_ms, str(error))
            except EvaluatorError as error:
                if isinstance(error, EvaluationCancelled):
                    raise
                # The candidate's figures stand; the next candidate's evaluation tries again.
                return _without(evaluation, str(error))
            with contextlib.suppress(OSError):  # then it is measured again the next time
                write_json(path, asdict(known))
        if known.ratio is None or known.interval is None:
            return _without(evaluation, known.failure)
        interval = evaluation.speedup_interval
        return replace(
            evaluation,
            speedup_compiled=evaluation.speedup * known.ratio,
            # Both ends at once: wider than 95 %, never narrower.
            speedup_compiled_interval=Interval(
                interval.low * known.interval.low, interval.high * known.interval.high, interval.level
            ),
        )

    def _path(self, problem: Problem, config: EvalConfig, environment: Mapping[str, Any]) -> Path:
        key: list[Any] = [problem.id, problem.version, config.size, config.precision]
        key += [environment.get(name) for name in _DEPENDS_ON]
        return self._folder / f"{hashlib.sha256(json.dumps(key).encode()).hexdigest()[:32]}.json"


def _without(evaluation: Evaluation, reason: str) -> Evaluation:
    return replace(evaluation, notes=(*evaluation.notes, f"no comparison with torch.compile: {reason}"))


def _measure(config: EvalConfig, evaluate: Callable[[Candidate, EvalConfig], Evaluation]) -> CompiledBaseline:
    reference = parse_candidate(code=_REFERENCE)
    assert isinstance(reference, Candidate)
    plan = SamplingPlan(trials=1, gradient_trials=0, warm_samples=0)
    its_config = replace(config, baseline="compile", compare_compiled=False, require_gradients=False, sampling=plan)
    found = evaluate(reference, its_config)
    if found.speedup is None:
        why = found.speedup_status or f"{found.verdict}: {found.message}"
        raise InfrastructureFault(f"the reference, eager, against itself compiled: {why}")
    # The candidate is the eager reference here, and its baseline the compiled one.
    eager_ms = median(found.samples["inference"].candidate_device_ms)
    return CompiledBaseline(found.speedup, found.speedup_interval, eager_ms)


def _read(path: Path) -> CompiledBaseline | None:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        interval = None if data["interval"] is None else Interval(**data["interval"])
        return CompiledBaseline(**{**data, "interval": interval})
    except (OSError, ValueError, TypeError, KeyError):
        return None  # not there, or invalid: measured anew
