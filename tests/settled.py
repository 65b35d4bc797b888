"""Evaluations with figures: a busy machine leaves some unsettled, and the service measures those again later."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from evaluator.evaluation import Evaluation

__all__ = ["settled", "settled_together"]

_TRIES: Final = 16


def settled(evaluate: Callable[[], Evaluation]) -> Evaluation:
    """Evaluate until every track has its figures; after a few tries, what came last."""
    evaluation: Evaluation = settled_together(lambda: {0: evaluate()})[0]
    return evaluation


def settled_together(evaluate: Callable[[], dict[int, Any]]) -> dict[int, Any]:
    """As ``settled``, for several evaluations at once; what is none has no figures to wait for."""
    for _ in range(_TRIES):
        found = evaluate()
        if all(_is_settled(each) for each in found.values() if isinstance(each, Evaluation)):
            break
    return found


def _is_settled(evaluation: Evaluation) -> bool:
    lacks_warm = "inference_warm" in evaluation.samples and evaluation.speedup_warm is None
    return not evaluation.unsettled and not lacks_warm
