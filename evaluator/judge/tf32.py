"""The tolerances of a session: the problem's, or wider ones where the reference itself rounds to TF32.

PyTorch lets convolutions and recurrent layers of float32 numbers round to TF32 on a GPU. A candidate that does what the
reference does is then off by some 4e-4 of the root mean square after one layer, and by more after several. So the
tolerance follows from the error of the native-precision reference, once for each problem.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable
from statistics import median
from typing import Final

import torch

from evaluator.judge.candidate_session import SessionContext
from evaluator.judge.correctness.limits import scale_of
from evaluator.judge.correctness.nonfinite import mask_nonfinite
from evaluator.judge.correctness.reference import Reference
from evaluator.judge.inputs.drawing import InputSource, Variant
from evaluator.judge.inputs.informative_kinds import in_both_precisions
from evaluator.problems.problem import Tolerance

__all__ = ["one_digit", "relative_error", "settle_tolerances"]

_TIMES: Final = 8.0
"""The tolerance is this many times the typical error. Of normally distributed ones, that is 0.68 deviations."""
_MOST: Final = 1e-2
"""The tolerance of half precisions: an error of TF32 beyond it is no reason for more."""
_ERRORS: Final[dict[Hashable, tuple[float, float]]] = {}
"""The errors of outputs and gradients, by problem. They are kept because two evaluations should not differ."""


def settle_tolerances(common: SessionContext, cut: tuple[int, int] | None) -> str:
    """Widen the tolerances of a session where its reference rounds to TF32, and return a note about it, "" without one.

    The error of a tensor is the typical error of its elements, relative to the scale of usual limits. Of outputs, the
    largest counts. Of gradients, the median counts, because some gradients are nothing but rounding. ``cut``: the rows
    to compute, or ``None`` for all. Nothing may be planted or called before.
    """
    problem, config, reference = common.problem, common.config, common.reference
    if config.device_kind != "cuda" or config.precision != "float32" or not reference.signature.rounds_to_tf32:
        return ""
    if not problem.tf32_in(config):
        return "convolutions and recurrent layers begin with TF32 switched off"
    usual = problem.tolerance(config.precision)
    errors = _ERRORS.get(common.problem_key)
    if errors is None:
        errors = _ERRORS[common.problem_key] = _tf32_errors(reference, common.source, cut, gradients=common.training)
    common.tolerances.outputs, common.tolerances.gradients = (_at_least(usual, error) for error in errors)
    planted = common.tolerances.outputs
    common.source.plant_within(planted.atol + planted.rtol)
    wider = [f"{each.rtol:g}" for each in (common.tolerances.outputs, common.tolerances.gradients)]
    return (
        "convolutions and recurrent layers may round to TF32, as by PyTorch's default: "
        f"the tolerance of outputs is {wider[0]}, that of gradients {wider[1]}"
    )


def _tf32_errors(
    reference: Reference, source: InputSource, cut: tuple[int, int] | None, *, gradients: bool
) -> tuple[float, float]:
    """Return the relative errors of outputs and of gradients, which are at least those of outputs."""
    pairs, flowing = in_both_precisions(reference, source, Variant.AS_WRITTEN, cut, gradients=gradients)
    of_outputs = max(_errors(pairs), default=0.0)
    return of_outputs, max(of_outputs, median([*_errors(flowing)] or [0.0]))


def relative_error(exact: torch.Tensor, own: torch.Tensor) -> float:
    """Return the typical error of a native-precision tensor, relative to the scale of ``exact`` (float64, same shape).

    It is the square of the mean root, which a few elements next to kinks hardly move. Elements without any error are
    not counted, and neither are those that are not finite in both. Zero where no element counts.
    """
    masked = mask_nonfinite(own, exact, own)
    roots = (masked.actual.double() - masked.expected).abs_().sqrt_()
    counted = int((roots > 0).sum())
    return float(roots.sum() / counted) ** 2 / scale_of(masked.expected)[0] if counted else 0.0


def one_digit(value: float) -> float:
    """Return a positive ``value``, rounded up to one significant digit. Errors of other inputs hardly change it."""
    step = 10.0 ** math.floor(math.log10(value))
    return float(f"{math.ceil(value / step - 1e-9) * step:.0e}")


def _errors(pairs: Iterable[tuple[torch.Tensor, torch.Tensor]]) -> Iterable[float]:
    return (relative_error(exact, own) for exact, own in pairs if exact.is_floating_point())


def _at_least(usual: Tolerance, error: float) -> Tolerance:
    if _TIMES * error <= max(usual.atol, usual.rtol):
        return usual
    wider = min(one_digit(_TIMES * error), _MOST)
    return Tolerance(max(usual.atol, wider), max(usual.rtol, wider))
