"""The memory that the reference takes, found on the meta device before anything is allocated."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

import torch

from evaluator.judge.correctness.reference import Reference
from evaluator.judge.footprint import Footprint
from evaluator.judge.signature import double_bytes
from evaluator.problems.problem import Problem

__all__ = ["Use", "use_of"]

_UNWATCHED: Final = 3
_WIDER: Final = 2
_MANY_OPERATORS: Final = 10_000
"""A forward of more operators is not run once more: a recurrent layer of many steps takes seconds on the meta device.
"""
_FLOWING: Final = 2
"""Gradients of intermediate tensors that are there at once, where a backward is not run."""
_USES: Final[dict[tuple[Any, ...], Use]] = {}
"""By problem, version, size, precision, the elements of a slice, and whether gradients are compared. The latest ones
are kept."""
_MOST_USES: Final = 256


@dataclass(frozen=True)
class Use:
    """The most memory of a call of the reference beyond its inputs, its weights and its upstream gradients, in bytes.

    ``drawn``: while inputs are drawn, with these. ``whole``: of a call in the problem's precision; ``part`` of one
    slice; ``exact`` of one slice in float64; ``largest``: of the largest tensor there. Outputs and gradients count.
    """

    drawn: int
    whole: int
    part: int
    exact: int
    largest: int

    def share(self, parts: int) -> Use:
        """Return about that of a problem whose tensors have 1/``parts`` of the elements."""
        drawn, whole = (math.ceil(each / parts) for each in (self.drawn, self.whole))
        left = min(1.0, self.whole / max(1, parts * self.part))
        return Use(drawn, whole, *(math.ceil(left * each) for each in (self.part, self.exact, self.largest)))


def use_of(problem: Problem, reference: Reference, slice_elements: int | None, *, gradients: bool) -> Use:
    """Return the use of a call, forward and backward if there are ``gradients``. Nothing is computed. It is found once
    for each problem at a size in a process."""
    key = (*reference.problem_key, reference.precision, slice_elements, gradients)
    if key not in _USES:
        while len(_USES) >= _MOST_USES:
            del _USES[next(iter(_USES))]
        cut = reference.signature.slices(slice_elements)[0]
        whole = _footprint(reference, None, gradients=gradients)
        if cut is None:
            part = whole
        elif reference.signature.forward.operators > _MANY_OPERATORS:
            part = _part_of(whole, (cut[1] - cut[0]) / (reference.signature.sliced_rows or 1))
        else:
            part = _footprint(reference, cut, gradients=gradients)
        drawn = _drawn_bytes(reference, as_written=problem.input_domain == "as_written")
        _USES[key] = Use(drawn, whole.peak_bytes, part.peak_bytes, part.peak_double_bytes, part.largest_double_bytes)
    return _USES[key]


def _drawn_bytes(reference: Reference, *, as_written: bool) -> int:
    """Return the bytes of a draw of ``get_inputs``, with the copies that the judge makes of it."""
    found, specs = Footprint(), reference.signature.input_tensors
    input_bytes = sum(spec.size_bytes for spec in specs)
    with found:
        values = [value for value in reference.inputs_on_meta() if isinstance(value, torch.Tensor)]
    is_ours = all(
        value.dtype is spec.torch_dtype and value.is_contiguous() and value.untyped_storage().nbytes() == value.nbytes
        for value, spec in zip(values, specs, strict=True)
    )
    # Three draws are compared where the judge has no numbers of its own to add.
    compared = as_written or not all(spec.is_differentiable for spec in specs)
    return max(found.peak_bytes, input_bytes) + (0 if is_ours else input_bytes) + (2 * input_bytes if compared else 0)


def _footprint(reference: Reference, cut: tuple[int, int] | None, *, gradients: bool) -> Footprint:
    found = Footprint()
    try:
        if reference.signature.forward.operators > _MANY_OPERATORS:
            return _with_backward(reference, gradients=gradients)
        _call(reference, cut, found, gradients=gradients)
    except Exception:  # noqa: BLE001 - what compiles itself may refuse to be watched, or to have fewer rows
        signature = reference.signature
        tensors = [*signature.tensors, *(spec for _, spec in signature.weights)]
        found.peak_bytes = max(found.peak_bytes, _UNWATCHED * sum(spec.size_bytes for spec in tensors))
        wider = max(double_bytes((spec,)) / max(1, spec.size_bytes) for spec in tensors)
        found.largest_double_bytes = max(double_bytes((spec,)) for spec in tensors)
        found.peak_double_bytes = math.ceil(found.peak_bytes * wider)
    return found


def _with_backward(reference: Reference, *, gradients: bool) -> Footprint:
    """Return the forward's footprint with about as much as a backward adds."""
    found, signature = Footprint(), reference.signature
    forward = signature.forward
    largest = forward.largest_double_bytes
    found.largest_double_bytes = largest
    found.peak_bytes, found.peak_double_bytes = forward.peak_bytes, forward.peak_double_bytes
    if gradients:
        specs = [*signature.float_inputs, *(spec for _, spec in signature.weights)]
        given = sum(spec.size_bytes for spec in specs)
        found.peak_bytes += given + _FLOWING * largest // _WIDER
        found.peak_double_bytes += double_bytes(tuple(specs)) + _FLOWING * largest
    return found


def _part_of(whole: Footprint, share: float) -> Footprint:
    found = Footprint()
    found.peak_bytes = math.ceil(whole.peak_bytes * share)
    found.peak_double_bytes = math.ceil(whole.peak_double_bytes * share)
    found.largest_double_bytes = math.ceil(whole.largest_double_bytes * share)
    return found


def _call(reference: Reference, cut: tuple[int, int] | None, found: Footprint, *, gradients: bool) -> None:
    model, arguments = reference.on_meta()
    tensors = [value for value in arguments if isinstance(value, torch.Tensor)]
    given = iter(reference.signature.rows_of_inputs([tensor.detach() for tensor in tensors], cut))
    values = [
        next(given).requires_grad_(value.requires_grad) if isinstance(value, torch.Tensor) else value
        for value in arguments
    ]
    if not gradients:
        with torch.no_grad(), found:
            model(*values)
        return
    with found:
        result = model(*values)
    outputs = [
        each
        for each in (result if isinstance(result, tuple | list) else [result])
        if isinstance(each, torch.Tensor) and each.requires_grad
    ]
    wanted = [each for each in (*values, *model.parameters()) if isinstance(each, torch.Tensor) and each.requires_grad]
    upstream = [torch.empty_like(output) for output in outputs]
    with found:
        gradients_found = torch.autograd.grad(outputs, wanted, upstream, allow_unused=True)
    del gradients_found
