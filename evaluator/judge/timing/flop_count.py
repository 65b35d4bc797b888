"""The least work of a call of the reference: bytes and operations, counted without computing anything.

**Bytes** are compulsory traffic, as if the cache were endless. Each byte of an input, parameter or buffer that the
reference reads counts once, and each byte of its results. In the training track these are the reads of the forward, the
outputs, the upstream gradients, and the gradients of inputs and parameters. Intermediate tensors are not counted, since
a candidate may fuse them away.

A tensor of which a view is read counts with that view. A tensor from which elements are gathered (an embedding, an
index) counts with the gathered elements, and never with more than its size. Repeated indices cannot be known without
their values: repeated rows are counted as often as they occur. So the bound is too high for gathers with many
repetitions from a large table. Overlapping views are counted one by one, as well.

**Operations** are those of matrix products, convolutions and attention, as ``torch.utils.flop_counter.FlopCounterMode``
counts them (a multiplication with its addition is 2). Element-wise operations, reductions, sorts and operators without
a formula in torch are not counted.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from evaluator.judge.correctness.reference import Reference
from evaluator.roofline import Work

__all__ = ["count_work", "known_work", "work_of"]

_GATHERS: Final = {"aten::embedding", "aten::gather", "aten::index", "aten::index_select", "aten::take"}
_BAGS: Final = {"aten::_embedding_bag", "aten::_embedding_bag_forward_only"}
_MAX_KNOWN: Final = 1024

_known: dict[Hashable, dict[str, Work]] = {}


def known_work(key: Hashable, count: Callable[[], dict[str, Work]]) -> dict[str, Work]:
    """Return the result of ``count``, or its earlier result for ``key`` in this process: counting takes as long as some
    calls.

    Raises the errors of ``count``.
    """
    if key not in _known:
        if len(_known) >= _MAX_KNOWN:
            del _known[next(iter(_known))]
        _known[key] = count()
    return _known[key]


def count_work(reference: Reference, draw: Callable[[], Sequence[Any]], *, training: bool) -> dict[str, Work]:
    """Return the work of each track, counted on the meta device, which computes nothing. Where an operator has no meta
    form, it is counted in a call on inputs of ``draw`` on the reference's own device.

    Raises the errors of that call.
    """
    try:
        return work_of(*reference.on_meta(), training=training)
    except (RuntimeError, NotImplementedError, TypeError):
        model, arguments = reference.constructed(draw())
        # A call may change buffers, and the comparison goes on with the reference's own.
        return work_of(copy.deepcopy(model), arguments, training=training)


def work_of(model: torch.nn.Module, arguments: Sequence[Any], *, training: bool) -> dict[str, Work]:
    """Return the work of ``inference`` and, if ``training``, of ``training``. Floating-point ``arguments`` require
    gradients."""
    tensors = [value for value in arguments if isinstance(value, torch.Tensor)]
    reads = _Reads([*tensors, *model.parameters(), *model.buffers()])
    with torch.no_grad(), FlopCounterMode(display=False) as forward, reads:
        outputs = _as_list(model(*arguments))
    call_bytes = reads.read_bytes + _distinct_bytes(outputs)
    inference = Work(call_bytes, forward.get_total_flops())
    if not training:
        return {"inference": inference}
    # Outside of the counter: its hooks fail when the gradient of a leaf is requested.
    outputs = [output for output in _as_list(model(*arguments)) if output.requires_grad]
    leaves = [tensor for tensor in (*tensors, *model.parameters()) if tensor.requires_grad]
    upstream = [torch.empty_like(output) for output in outputs]
    with FlopCounterMode(display=False) as backward:
        found = torch.autograd.grad(outputs, leaves, upstream, allow_unused=True)
    gradients = [_size(gradient) for gradient in found if gradient is not None]
    return {
        "inference": inference,
        "training": Work(
            call_bytes + sum(map(_size, upstream)) + sum(gradients),
            forward.get_total_flops() + backward.get_total_flops(),
        ),
    }


class _Reads(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Note the reads of some tensors by operators; tensors that share memory count as one."""

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._tensors = list(tensors)  # keeps the storages, whose identities are the keys below
        self._sizes = {_storage(tensor): tensor.untyped_storage().nbytes() for tensor in tensors}
        self._seen: dict[int, dict[tuple[Any, ...], int]] = {key: {} for key in self._sizes}

    @property
    def read_bytes(self) -> int:
        """Return the bytes of the tensors that were read, each once."""
        return sum(min(size, sum(self._seen[key].values())) for key, size in self._sizes.items())

    def __torch_dispatch__(
        self, func: Any, _types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if not func.is_view and not _only_shapes(func):
            for number, tensor in enumerate(tree_leaves((args, kwargs))):
                if isinstance(tensor, torch.Tensor) and (key := _storage(tensor)) in self._sizes:
                    place: tuple[Any, ...] = (tensor.storage_offset(), tensor.shape, tensor.stride())
                    size = _distinct_bytes([tensor])
                    if number == 0 and (gathered := _gathered_bytes(func.name(), args, result)) is not None:
                        # Two gathers from one table have separate indices.
                        place, size = (*place, len(self._seen[key])), min(size, gathered)
                    self._seen[key][place] = size
        return result


def _gathered_bytes(name: str, args: tuple[Any, ...], result: Any) -> int | None:
    """Return the bytes that a gather reads of its first argument; ``None`` for every other operator."""
    name = name.partition(".")[0]
    if name in _GATHERS:
        return _size(result)
    if name in _BAGS:
        return int(args[1].numel()) * _size(args[0][0])
    return None


def _only_shapes(func: Any) -> bool:
    """Whether an operator reads only the shapes of its arguments."""
    name = str(func.name()).partition(".")[0]
    return name.endswith("_like") or name.startswith(("aten::new_", "aten::sym_", "aten::is_"))


def _storage(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _distinct_bytes(tensors: Sequence[torch.Tensor]) -> int:
    """Return the bytes of memory that the tensors cover; expanded dimensions and repeated tensors count once."""
    places = {(_storage(t), t.storage_offset(), t.shape, t.stride()): t for t in tensors}
    return sum(
        t.element_size() * math.prod(n for n, step in zip(t.shape, t.stride(), strict=True) if step)
        for t in places.values()
    )


def _size(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _as_list(result: Any) -> list[torch.Tensor]:
    return list(result) if isinstance(result, tuple | list) else [result]
