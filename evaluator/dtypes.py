"""What may be done with a tensor of some dtype: differentiated, drawn anew, compared as real numbers.

Used by judge and runners alike, so that both have the same inputs in mind when they speak of gradients.
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
    "spoilt",
    "tensor_on",
    "unjudged",
]

_SIGNED: Final = {torch.uint16: torch.int16, torch.uint32: torch.int32, torch.uint64: torch.int64}
"""Torch can do little with the former: neither select nor subtract."""
_DOUBLE: Final = {torch.complex32: torch.complex128, torch.complex64: torch.complex128}


def is_differentiable(value: Any) -> bool:
    """Whether something flows back to ``value``: a tensor of real or complex numbers. Eight bits of a number are a way
    to store it, and count as integers do."""
    return isinstance(value, torch.Tensor) and has_gradients(value.dtype)


def has_gradients(dtype: torch.dtype) -> bool:
    """Whether something flows back to tensors of ``dtype``."""
    return dtype.is_complex or (dtype.is_floating_point and dtype.itemsize > 1)


def spoilt(dtype: torch.dtype) -> float:
    """The number that is written to what a call has returned, once it is known."""
    return math.nan if has_gradients(dtype) else 1


def in_double(value: Any) -> Any:
    """``value`` in float64 or complex128, where it is a tensor that is differentiable; else as it is."""
    if not is_differentiable(value):
        return value
    return value.to(_DOUBLE.get(value.dtype, value.dtype)) if value.is_complex() else value.double()


def as_reals(tensor: torch.Tensor) -> torch.Tensor:
    """The numbers of ``tensor`` as they are compared: complex ones as pairs along one more dimension, those of eight
    bits as float32, unsigned integers that torch knows little about as int64."""
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
    """A few numbers on ``device``, in the shape that they have. To make them there at once would wait for all that is
    under way; the driver keeps a copy of its own of so few until it has come to them."""
    return torch.tensor(values, dtype=dtype).to(device, non_blocking=True)


def coarsest(dtypes: list[torch.dtype]) -> torch.dtype | None:
    """The floating-point dtype among these that has the fewest bits of a fraction; ``None`` where there is none. Of
    complex numbers, that of their parts."""
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
