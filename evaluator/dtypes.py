"""The operations that a tensor of some dtype allows: differentiating, drawing anew, comparing as real numbers.

Judge and runners both use it, so that both mean the same inputs when they speak of gradients.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import torch

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = [
    "as_reals",
    "as_signed",
    "coarsest",
    "has_gradients",
    "in_double",
    "is_differentiable",
    "rows_of",
    "scrub_value",
    "tensor_on",
    "unjudged",
]

_SIGNED: Final = {torch.uint16: torch.int16, torch.uint32: torch.int32, torch.uint64: torch.int64}
"""Torch has few operations for the former: neither select nor subtract."""
_DOUBLE: Final = {torch.complex32: torch.complex128, torch.complex64: torch.complex128}


def is_differentiable(value: Any) -> bool:
    """Whether gradients flow back to ``value``: a tensor of real or complex numbers.

    A floating-point dtype of eight bits is a storage format, and counts as an integer.
    """
    return isinstance(value, torch.Tensor) and has_gradients(value.dtype)


def has_gradients(dtype: torch.dtype) -> bool:
    """Whether gradients flow back to tensors of ``dtype``."""
    return dtype.is_complex or (dtype.is_floating_point and dtype.itemsize > 1)


def scrub_value(dtype: torch.dtype) -> float:
    """The number that overwrites a call's results once they have been read."""
    return math.nan if has_gradients(dtype) else 1


def in_double(value: Any) -> Any:
    """Convert ``value`` to float64 or complex128, if it is a differentiable tensor; else return it as it is."""
    if not is_differentiable(value):
        return value
    return value.to(_DOUBLE.get(value.dtype, value.dtype)) if value.is_complex() else value.double()


def as_reals(tensor: torch.Tensor) -> torch.Tensor:
    """Convert ``tensor`` to the real numbers that are compared.

    Complex numbers become pairs along one more dimension, eight-bit floats float32, and unsigned integers with few
    torch operations int64.
    """
    if tensor.is_complex():
        return torch.view_as_real(tensor.resolve_conj())
    if tensor.is_floating_point() and tensor.element_size() == 1:
        return tensor.float()
    if tensor.dtype is torch.uint64:
        return tensor.view(torch.int64)
    return tensor.to(torch.int64) if tensor.dtype in _SIGNED else tensor


def as_signed(tensor: torch.Tensor) -> torch.Tensor:
    """A view of the same bits from which elements can be selected."""
    return tensor.view(_SIGNED[tensor.dtype]) if tensor.dtype in _SIGNED else tensor


def rows_of(tensor: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """A copy of some rows."""
    return as_signed(tensor).index_select(0, rows).view(tensor.dtype)


def tensor_on(
    device: torch.device, values: Sequence[float] | npt.NDArray[np.int64], dtype: torch.dtype
) -> torch.Tensor:
    """Make a tensor of a few numbers on ``device``, in their shape.

    Making them there at once would wait for all work under way. For so few, the driver keeps a copy of its own until it
    has come to them.
    """
    return torch.tensor(values, dtype=dtype).to(device, non_blocking=True)


def coarsest(dtypes: list[torch.dtype]) -> torch.dtype | None:
    """The floating-point dtype among these with the fewest bits of a fraction; ``None`` where there is none.

    For complex numbers, the dtype of their parts counts.
    """
    reals = [dtype.to_real() if dtype.is_complex else dtype for dtype in dtypes]
    floating = [dtype for dtype in reals if dtype.is_floating_point]
    return max(floating, key=lambda dtype: torch.finfo(dtype).eps, default=None)


def unjudged(tensor: torch.Tensor) -> str | None:
    """Why a tensor like this can be no input or output of a problem, in words; ``None`` where it can."""
    if tensor.is_nested:
        return "it is nested: tensors of one shape are known"
    if tensor.layout is not torch.strided:
        return f"it is sparse ({str(tensor.layout).removeprefix('torch.')}): dense tensors are known"
    if tensor.is_quantized:
        return f"it is quantized ({str(tensor.dtype).removeprefix('torch.')}): plain integers are known"
    if tensor.dtype is torch.complex32:
        return "it is complex32: complex64 and complex128 are known"
    return None
