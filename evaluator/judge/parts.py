"""Parts of a large tensor that are compared one after the other: what is wrong takes eight times a part's memory."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import torch

__all__ = ["MOST_COMPARED", "Part", "parts_of", "whole_of"]

Part = Callable[[torch.Tensor], torch.Tensor]
"""A view of a part of any tensor of one shape."""

MOST_COMPARED: Final = 2**26
"""Gradients of more elements, which are not computed in slices of rows, are compared in parts of about so many."""


def parts_of(tensor: torch.Tensor) -> list[Part]:
    """Return the parts of a contiguous tensor: rows of its first dimension that has several, in their order."""
    if tensor.numel() <= MOST_COMPARED:
        return [whole_of]
    single = next(number for number, extent in enumerate(tensor.shape) if extent > 1)
    extent = tensor.shape[single]
    step = max(1, MOST_COMPARED * extent // tensor.numel())
    return [partial(_rows, tensor.shape[single:], start, start + step) for start in range(0, extent, step)]


def whole_of(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor itself."""
    return tensor


def _rows(shape: torch.Size, start: int, end: int, tensor: torch.Tensor) -> torch.Tensor:
    return tensor.reshape(shape)[start:end]
