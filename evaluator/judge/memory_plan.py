"""The memory of an evaluation, computed before anything is allocated."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

from evaluator.errors import DoesNotFit, GroupDoesNotFit
from evaluator.judge.correctness.sensitivity import PARKED_BYTES, SUMS
from evaluator.judge.device.device import Capacity
from evaluator.judge.parts import MOST_COMPARED
from evaluator.judge.reference_memory import Use
from evaluator.judge.signature import DOUBLE_BYTES, Signature, double_bytes
from evaluator.protocol.shared_memory import BlockLayout, TensorSpec

__all__ = [
    "PRECHECK_BYTES",
    "MemoryPlan",
    "draft_plan",
    "fitting_share",
    "plan_memory",
    "right_bytes",
    "wrong_bytes",
]

_COMPARED_COPIES: Final = 8
"""The number of float64 copies of a tensor that comparing it takes, where something is wrong."""
_MOVED_COPIES: Final = 3
"""Inputs in float64, their moves, and moved ones."""
_MOVEMENTS: Final = 4
"""The kinds of movements of gradients that are kept at once, of up to ``PARKED_BYTES`` each."""
_SCALED_PARTS: Final = 3
"""The movements of the part that is compared: of two kinds, and the larger of both."""
_STEPPED_COPIES: Final = 3
_STEPPED_BYTES: Final = 2**28
"""Weights up to this size are moved between calls, and kept as they were."""
_WORKSPACE_BYTES: Final = 2**28
"""The libraries of a GPU take about this much for a convolution or a product."""
_GIB: Final = 2**30
_MAX_HALVINGS: Final = 24
PRECHECK_BYTES: Final = _GIB
"""Larger inputs are not kept for prechecks, which write a pattern then."""
_SHORT_BYTES: Final = 4 * _GIB
"""No device reads and writes more in a millisecond, the most time of a short call."""


@dataclass(frozen=True)
class MemoryPlan:
    """Layouts of the shared blocks, and the bytes that the evaluation may reach on the device.

    ``room_bytes``: the available bytes. ``lean``: candidate and baseline take turns in keeping memory, because both at
    once would be too much. ``candidates``: their number, without the baseline.
    """

    layouts: dict[str, BlockLayout]
    shared_bytes: int
    judge_bytes: int
    runner_bytes: int
    context_bytes: int
    room_bytes: int
    lean: bool
    candidates: int

    @property
    def peak_bytes(self) -> int:
        runners = self.runner_bytes if self.lean else (self.candidates + 1) * self.runner_bytes
        return self.shared_bytes + self.judge_bytes + runners + self.context_bytes

    @property
    def fits(self) -> bool:
        """Whether there is room for it."""
        return self.peak_bytes <= self.room_bytes

    def has_room_for(self, byte_count: int) -> bool:
        """Whether the plan would be the same, and not a lean one, with ``byte_count`` less room."""
        return not self.lean and self.peak_bytes + self.runner_bytes + byte_count <= self.room_bytes

    def describe(self) -> str:
        return (
            f"{self.peak_bytes / _GIB:.1f} GiB ({self.shared_bytes / _GIB:.1f} for inputs, outputs and gradients, "
            f"{self.judge_bytes / _GIB:.1f} for the reference, {self.runner_bytes / _GIB:.1f} for a model's own "
            f"tensors, {self.context_bytes / _GIB:.1f} for processes)"
        )


def plan_memory(
    signature: Signature,
    use: Use,
    capacity: Capacity,
    *,
    sliced: bool,
    gradients: bool,
    limit: int | None,
    contexts: int,
    candidates: int,
) -> MemoryPlan:
    """Return the plan for one evaluation of this many ``candidates``. ``use``: that of the reference, with ``sliced``
    as here; only whether rows may be computed in slices decides that. ``contexts``: the number of processes that come
    to the device meanwhile. ``limit``: the most bytes that it may take, ``None`` for all that are free.

    Raises ``DoesNotFit`` with the figures where the device is too small, ``GroupDoesNotFit`` for several candidates.
    """
    plan = draft_plan(
        signature,
        use,
        capacity,
        sliced=sliced,
        gradients=gradients,
        limit=limit,
        contexts=contexts,
        candidates=candidates,
    )
    if plan.lean and candidates > 1:
        at_once = replace(plan, lean=False).describe()
        raise GroupDoesNotFit(f"so many together need {at_once}, of {plan.room_bytes / _GIB:.1f} GiB")
    if not plan.fits:
        share = fitting_share(
            signature, use, capacity, sliced=sliced, gradients=gradients, limit=limit, contexts=contexts
        )
        raise DoesNotFit(
            f"this size needs {plan.describe()}, and the device has {plan.room_bytes / _GIB:.1f} GiB free of "
            f"{capacity.total_bytes / _GIB:.1f} GiB" + (f"; about {share} of its bytes would fit" if share else "")
        )
    return plan


def draft_plan(
    signature: Signature,
    use: Use,
    capacity: Capacity,
    *,
    sliced: bool,
    gradients: bool,
    limit: int | None,
    contexts: int,
    candidates: int,
) -> MemoryPlan:
    """Return the plan of ``plan_memory``, whether it fits or not."""
    weights = tuple(spec for _, spec in signature.weights)
    layouts = {
        "inputs": BlockLayout(signature.input_tensors),
        "outputs": BlockLayout(signature.outputs),
        "upstream": BlockLayout(signature.outputs if gradients else ()),
        "input_gradients": BlockLayout(signature.float_inputs if gradients else ()),
        "weights": BlockLayout((*weights, *(spec for _, spec in signature.buffers))),
        "weight_gradients": BlockLayout(weights if gradients else ()),
    }
    free = capacity.total_bytes - capacity.used_bytes
    room = free if limit is None else min(limit, free)
    weight_bytes = _size(weights)
    output_bytes, input_bytes = _size(signature.outputs), _size(signature.input_tensors)
    workspace = _WORKSPACE_BYTES if capacity.asynchronous else 0
    runner = weight_bytes + use.whole + workspace
    # Copies of a draw are gone when upstream gradients are drawn. Short calls on a GPU have other inputs for the call
    # before. The comparison reuses the memory of all of these, except of inputs
    # that are kept for prechecks.
    upstream_bytes = output_bytes if gradients else 0
    others = input_bytes + upstream_bytes if capacity.asynchronous else 0
    before = others if others <= _SHORT_BYTES else 0
    each = (input_bytes, others) if capacity.asynchronous else ()
    kept = max((size for size in each if size <= PRECHECK_BYTES), default=0)
    given = max(use.drawn, input_bytes + upstream_bytes) + before
    slice_elements = capacity.slice_elements if sliced else None
    drawn = input_bytes + upstream_bytes + right_bytes(signature, use, slice_elements, gradients=gradients)
    judge = max(given, drawn, wrong_bytes(signature, use, slice_elements, gradients=gradients)) + kept
    # In the problem's precision and in float64, and as before a step of training.
    judge += weight_bytes + double_bytes(weights) + _STEPPED_COPIES * min(weight_bytes, _STEPPED_BYTES) + workspace
    plan = MemoryPlan(
        layouts=layouts,
        shared_bytes=sum(layout.size_bytes for layout in layouts.values()),
        judge_bytes=judge,
        runner_bytes=runner,
        # The judge and its runners have their contexts already.
        context_bytes=contexts * capacity.context_bytes,
        room_bytes=room,
        lean=False,
        candidates=candidates,
    )
    # A candidate may need more than the reference, and gets the memory that the other side gives back.
    return replace(plan, lean=True) if plan.peak_bytes + runner > room else plan


def right_bytes(signature: Signature, use: Use, slice_elements: int | None, *, gradients: bool) -> int:
    """Return the bytes for one slice of a right result: inputs, upstream gradients, and the float64 reference."""
    tensors = _slice_of(signature, slice_elements)
    given = (*tensors[0], *(tensors[1] if gradients else ()))
    return _size(given) + double_bytes(given) + use.exact


def wrong_bytes(signature: Signature, use: Use, slice_elements: int | None, *, gradients: bool) -> int:
    """Return the bytes for one slice of a wrong result, which is compared with every movement of the reference."""
    inputs, outputs = _slice_of(signature, slice_elements)
    given = (*inputs, *(outputs if gradients else ()))
    weights = tuple(spec for _, spec in signature.weights) if gradients else ()
    found = (*outputs, *(inputs if gradients else ()), *weights)
    moving = (*inputs, *weights) if gradients else outputs
    whole = tuple(signature.float_inputs[number] for number in signature.whole_gradients)
    summed = double_bytes((*weights, *whole)) if gradients else 0
    kept = (double_bytes(inputs), summed) if gradients else ()
    # One tensor of the candidate's at a time is beside them.
    compared = _compared_bytes((*inputs, *outputs, *found))
    held = (
        2 * _size(given) + double_bytes(found) + _size(found) + max(map(_size, ((spec,) for spec in found)), default=0)
    )
    held += sum(_MOVEMENTS * each for each in kept if each <= PARKED_BYTES) + _SCALED_PARTS * compared
    if signature.slices(slice_elements)[0] is not None and SUMS * summed <= PARKED_BYTES:
        held += SUMS * summed
    upstream = double_bytes(outputs) if gradients else 0
    moved = double_bytes(moving) + _MOVED_COPIES * double_bytes(inputs) + upstream + use.exact + use.largest
    return held + max(use.part, moved, _COMPARED_COPIES * compared)


def _slice_of(
    signature: Signature, slice_elements: int | None
) -> tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...]]:
    """Return inputs and outputs of the first slice."""
    cut = signature.slices(slice_elements)[0]

    def part(spec: TensorSpec) -> TensorSpec:
        return spec if cut is None else TensorSpec((cut[1] - cut[0], *spec.shape[1:]), spec.dtype)

    inputs = tuple(
        spec if index in signature.whole_inputs else part(spec) for index, spec in enumerate(signature.input_tensors)
    )
    return inputs, signature.outputs if signature.pooled else tuple(map(part, signature.outputs))


def _compared_bytes(specs: tuple[TensorSpec, ...]) -> int:
    """Return the float64 bytes of the largest part that is compared at once: of a large tensor, some of its rows."""

    def part(spec: TensorSpec) -> int:
        rows = next((extent for extent in spec.shape if extent > 1), 1)
        return min(_elements(spec), max(MOST_COMPARED, _elements(spec) // rows))

    return DOUBLE_BYTES * max(map(part, specs), default=1)


def fitting_share(
    signature: Signature,
    use: Use,
    capacity: Capacity,
    *,
    sliced: bool,
    gradients: bool,
    limit: int | None,
    contexts: int,
) -> str | None:
    """Return the largest fitting share of a problem's bytes: one, a half, a quarter and so on, such as ``1/4``.
    ``None`` where hardly anything fits. Arguments as for ``plan_memory``."""
    for exponent in range(_MAX_HALVINGS):
        part = _part_of(signature, 2**exponent)
        plan = draft_plan(
            part,
            use.share(2**exponent),
            capacity,
            sliced=sliced,
            gradients=gradients,
            limit=limit,
            contexts=contexts,
            candidates=1,
        )
        if plan.fits:
            return f"1/{2**exponent}"
    return None


def _part_of(signature: Signature, parts: int) -> Signature:
    """Return the signature with tensors of 1/``parts`` of the rows, and of the elements where there are no more rows to
    leave out."""

    def smaller(spec: TensorSpec) -> TensorSpec:
        rows, *rest = spec.shape or (1,)
        fewer = max(1, rows // parts)
        left = math.prod(rest)
        return TensorSpec((fewer, max(1, math.ceil(rows * left / parts / fewer)) if left else 0), spec.dtype)

    return replace(
        signature,
        inputs=tuple(smaller(value) if isinstance(value, TensorSpec) else value for value in signature.inputs),
        outputs=tuple(map(smaller, signature.outputs)),
        weights=tuple((name, smaller(spec)) for name, spec in signature.weights),
        buffers=tuple((name, smaller(spec)) for name, spec in signature.buffers),
    )


def _size(specs: tuple[TensorSpec, ...]) -> int:
    return sum(spec.size_bytes for spec in specs)


def _elements(spec: TensorSpec) -> int:
    return spec.size_bytes // spec.torch_dtype.itemsize
