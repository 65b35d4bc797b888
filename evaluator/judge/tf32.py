"""The tolerances of a session: the problem's, or wider ones where the reference itself rounds to TF32.

PyTorch lets convolutions and recurrent layers of float32 numbers round to TF32 on a GPU. A candidate that does what the
reference does is then off by some 4e-4 of the root mean square after one layer, and by more after several. So the
tolerance follows from that error, once for each problem.

The error is found with exact arithmetic on operands that are rounded to TF32. So it has no other cause, and does not
depend on the kernels that cuDNN chooses.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Sequence
from statistics import median
from typing import Any, Final

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from evaluator.config import EvalConfig
from evaluator.judge.candidate_session import SessionContext
from evaluator.judge.correctness.limits import scale_of
from evaluator.judge.correctness.native_standard import without_tf32
from evaluator.judge.correctness.nonfinite import mask_nonfinite
from evaluator.judge.correctness.reference import GradientSlice, Reference
from evaluator.judge.correctness.tolerances import SettledTolerance, Tolerances
from evaluator.judge.inputs.drawing import InputSource, Variant
from evaluator.judge.inputs.informative_kinds import cloned, draw_call
from evaluator.judge.signature import Signature
from evaluator.problems.problem import Problem, Tolerance

__all__ = ["one_digit", "relative_error", "rounded_to_tf32", "settle_tolerances", "tolerances_as_stated"]

_TIMES: Final = 8.0
"""The tolerance is this many times the typical error, which is 5.4 standard deviations of normally distributed ones."""
_MOST: Final = 1e-2
"""The tolerance of half precisions: an error of TF32 beyond it is no reason for more."""
_DROPPED_BITS: Final = 13
_OPERANDS: Final = {torch.ops.aten.convolution: 2, torch.ops.aten.convolution_backward: 3}
"""Convolutions, with the number of their first arguments that are operands. Biases are added in float32."""
_RECURRENT: Final = {torch.ops.aten._cudnn_rnn, torch.ops.aten._cudnn_rnn_backward}
_ERRORS: Final[dict[Hashable, tuple[list[float], float]]] = {}
"""The errors of each output, and of gradients, by problem. They are kept because two evaluations should not differ."""


def tolerances_as_stated(problem: Problem, config: EvalConfig, signature: Signature) -> Tolerances:
    """Return the tolerances of a problem before anything is settled."""
    stated = problem.tolerance(config.precision)
    return Tolerances(stated, (stated,) * len(signature.outputs), stated)


def settle_tolerances(common: SessionContext, cut: tuple[int, int] | None) -> str:
    """Widen the tolerances of a session where its reference rounds to TF32, and return a note about it, "" without one.

    The error of a tensor is the typical error of its elements, relative to the scale of usual limits. Of gradients, the
    median counts, because some gradients are nothing but rounding. ``cut``: the rows to compute, or ``None`` for all.
    Nothing may be planted or called before.
    """
    config, reference, tolerances = common.config, common.reference, common.tolerances
    if config.device_kind != "cuda" or config.precision != "float32" or not reference.signature.rounds_to_tf32:
        return ""
    if not common.problem.tf32_in(config):
        return "convolutions and recurrent layers begin with TF32 switched off"
    errors = _ERRORS.get(common.problem_key)
    if errors is None:
        gradients = common.training and config.sampling.gradient_trials > 0
        errors = _ERRORS[common.problem_key] = _tf32_errors(reference, common.source, cut, gradients=gradients)
    of_outputs, of_gradients = errors
    tolerances.outputs = tuple(_at_least(tolerances.stated, error) for error in of_outputs)
    tolerances.gradients = _at_least(tolerances.stated, max(of_gradients, *of_outputs))
    widest = max((*tolerances.outputs, tolerances.gradients), key=_size)
    common.source.plant_within(_size(widest))
    outputs = max(tolerances.outputs, key=_size)
    return (
        "convolutions and recurrent layers may round to TF32, as by PyTorch's default: "
        f"the tolerance of outputs is {_described(outputs)}, that of gradients {_described(tolerances.gradients)}"
    )


def relative_error(exact: torch.Tensor, rounded: torch.Tensor) -> float:
    """Return the typical error of ``rounded``, relative to the scale of ``exact``: float64 tensors of one shape.

    It is the square of the mean root, which a few elements next to kinks hardly move. Elements without any error are
    not counted, and neither are those that are not finite in both. Zero where no element counts.
    """
    masked = mask_nonfinite(rounded, exact, rounded)
    roots = (masked.actual - masked.expected).abs_().sqrt_()
    counted = int((roots > 0).sum())
    return float(roots.sum() / counted) ** 2 / scale_of(masked.expected)[0] if counted else 0.0


def rounded_to_tf32(tensor: torch.Tensor) -> torch.Tensor:
    """Return a float32 tensor with its elements rounded to the nearest numbers of TF32; any other tensor unchanged."""
    if tensor.dtype is not torch.float32:
        return tensor
    bits = tensor.contiguous().view(torch.int32)
    return ((bits + (1 << (_DROPPED_BITS - 1))) & -(1 << _DROPPED_BITS)).view(torch.float32)


def one_digit(value: float) -> float:
    """Return a positive ``value``, rounded up to one significant digit. Errors of other inputs hardly change it."""
    step = 10.0 ** math.floor(math.log10(value))
    return float(f"{math.ceil(value / step - 1e-9) * step:.0e}")


class _RoundedOperands(TorchDispatchMode):  # type: ignore[no-untyped-call] # torch leaves its base unannotated
    """Round the operands of convolutions and recurrent layers to TF32, forward and backward."""

    def __torch_dispatch__(
        self, func: Any, _types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        count = len(args) if func.overloadpacket in _RECURRENT else _OPERANDS.get(func.overloadpacket, 0)
        rounded = tree_map_only(torch.Tensor, rounded_to_tf32, args[:count])
        return func(*rounded, *args[count:], **(kwargs or {}))


def _tf32_errors(
    reference: Reference, source: InputSource, cut: tuple[int, int] | None, *, gradients: bool
) -> tuple[list[float], float]:
    """Return the relative errors of the outputs, and the median of those of the gradients."""
    values, upstream = draw_call(reference.signature, source, Variant.AS_WRITTEN, cut, gradients=gradients)
    given = cloned(values)
    with without_tf32():
        exact = _native(reference, values, upstream)
        with _RoundedOperands():  # type: ignore[no-untyped-call]
            rounded = _native(reference, given, upstream)
    of_outputs = [*_errors(exact.outputs, rounded.outputs)]
    flowing = [*_errors((*exact.inputs, *exact.weights), (*rounded.inputs, *rounded.weights))]
    return of_outputs, median(flowing or [0.0])


def _native(reference: Reference, values: Sequence[Any], upstream: Sequence[torch.Tensor]) -> GradientSlice:
    if upstream:
        return reference.native_gradients(values, upstream)
    return GradientSlice(reference.native_outputs(values), [], [])


def _errors(exact: Sequence[torch.Tensor | None], rounded: Sequence[torch.Tensor | None]) -> Iterator[float]:
    for one, other in zip(exact, rounded, strict=True):
        if one is not None and other is not None:
            yield relative_error(one.double(), other.double()) if one.is_floating_point() else 0.0


def _at_least(stated: Tolerance, error: float) -> Tolerance:
    wider = min(one_digit(_TIMES * error), _MOST) if error > 0 else 0.0
    if wider <= min(stated.atol, stated.rtol):
        return stated
    return SettledTolerance(max(stated.atol, wider), max(stated.rtol, wider))


def _size(tolerance: Tolerance) -> float:
    return tolerance.atol + tolerance.rtol


def _described(tolerance: Tolerance) -> str:
    if tolerance.atol == tolerance.rtol:
        return f"{tolerance.rtol:g}"
    return f"{tolerance.atol:g} (absolute) and {tolerance.rtol:g} (relative)"
