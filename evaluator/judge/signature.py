"""Shapes and dtypes of a problem, and how a call of it divides into slices of rows."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

import torch

from evaluator.dtypes import has_gradients
from evaluator.judge.footprint import Footprint
from evaluator.protocol.shared_memory import TensorSpec

__all__ = ["DOUBLE_BYTES", "Signature", "double_bytes"]

DOUBLE_BYTES: Final = 8


@dataclass(frozen=True)
class Signature:
    """Shapes and dtypes of a problem at one size and precision, found without computing it.

    ``inputs``: one entry per argument of ``forward``: a tensor's spec, or the value of another argument. ``buffers``:
    those with floating-point values that belong to the model's state. ``products``: whether it has matrix products.
    ``chooses``: whether it has operators that return the index of one of several numbers. ``takes_largest``: whether it
    takes the largest or smallest of several.
    """

    inputs: tuple[Any, ...]
    outputs: tuple[TensorSpec, ...]
    weights: tuple[tuple[str, TensorSpec], ...]
    buffers: tuple[tuple[str, TensorSpec], ...]
    differentiable: bool
    products: bool
    chooses: bool = False
    takes_largest: bool = False
    """Whether operators take the largest or smallest of several numbers."""
    rounds_to_tf32: bool = False
    """Whether it has convolutions or recurrent layers of float32 numbers, which torch lets round to TF32 on a GPU."""
    whole_inputs: frozenset[int] = frozenset()
    """The tensor inputs that each slice of rows needs as a whole; their gradients are sums over all slices."""
    pooled: str = ""
    """``mean`` or ``sum``, where outputs are those over the slices' own; otherwise they have the slices' rows."""
    forward: Footprint = field(default_factory=Footprint, compare=False)
    """The memory of a forward, with all that a backward needs."""

    @property
    def input_tensors(self) -> tuple[TensorSpec, ...]:
        return tuple(value for value in self.inputs if isinstance(value, TensorSpec))

    @property
    def tensors(self) -> tuple[TensorSpec, ...]:
        """All inputs and outputs that are tensors."""
        return (*self.input_tensors, *self.outputs)

    @property
    def overflows_soon(self) -> bool:
        """Whether any tensor is float16."""
        specs = [*self.tensors, *(spec for _, spec in (*self.weights, *self.buffers))]
        return any(spec.torch_dtype is torch.float16 for spec in specs)

    @property
    def float_inputs(self) -> tuple[TensorSpec, ...]:
        """Inputs with gradients, real or complex; their gradients are contiguous."""
        return tuple(spec.contiguous for spec in self.input_tensors if spec.is_differentiable)

    @property
    def rows(self) -> int | None:
        """The common first extent of all input and output tensors; ``None`` where they differ, and where slices of rows
        are put together otherwise than by their rows."""
        return None if self.pooled or self.whole_inputs else self.sliced_rows

    @property
    def sliced_rows(self) -> int | None:
        """The common first extent of all tensors that a slice has rows of; ``None`` where they differ."""
        given = [spec for index, spec in enumerate(self.input_tensors) if index not in self.whole_inputs]
        extents = {spec.shape[:1] for spec in (*given, *(() if self.pooled else self.outputs))}
        if not given or len(extents) != 1 or () in extents:
            return None
        rows: int = extents.pop()[0]
        largest = max(math.prod(spec.shape[1:]) for spec in given)
        # Pooled outputs are kept several times over, so they must be small.
        if self.pooled and any(
            not has_gradients(spec.torch_dtype) or math.prod(spec.shape) > largest for spec in self.outputs
        ):
            return None
        return rows

    def slices(self, slice_elements: int | None) -> list[tuple[int, int] | None]:
        """Return the ranges of rows to treat at a time, of about ``slice_elements`` of the largest tensor. One ``None``
        (everything) where slicing is not allowed (``None``), not possible or not needed."""
        rows = self.sliced_rows
        elements = max((spec.size_bytes // spec.torch_dtype.itemsize for spec in self.sliced_tensors), default=0)
        if slice_elements is None or elements <= slice_elements or rows is None or rows < 2:
            return [None]
        step = max(1, slice_elements * rows // elements)
        return [(start, min(rows, start + step)) for start in range(0, rows, step)]

    @property
    def sliced_tensors(self) -> tuple[TensorSpec, ...]:
        """The inputs and outputs that a slice has rows of."""
        given = (spec for index, spec in enumerate(self.input_tensors) if index not in self.whole_inputs)
        return (*given, *(() if self.pooled else self.outputs))

    @property
    def whole_gradients(self) -> tuple[int, ...]:
        """The floating-point inputs that each slice has as a whole, by their number among these."""
        places = [index for index, spec in enumerate(self.input_tensors) if spec.is_differentiable]
        return tuple(number for number, index in enumerate(places) if index in self.whole_inputs)

    @property
    def summed_gradients(self) -> int:
        """The number of gradients that are sums over slices: of weights, and of inputs that slices need as a whole."""
        return len(self.weights) + len(self.whole_gradients)

    def rows_of_inputs(self, tensors: list[torch.Tensor], cut: tuple[int, int] | None) -> list[torch.Tensor]:
        """Return the tensor inputs of the slice of these rows; ``None`` for all."""
        if cut is None:
            return tensors
        return [each if index in self.whole_inputs else each[slice(*cut)] for index, each in enumerate(tensors)]

    def rows_of_outputs(self, tensors: list[torch.Tensor], cut: tuple[int, int] | None) -> list[torch.Tensor]:
        """Return the outputs of that slice, or their upstream gradients, out of those of the whole call."""
        return tensors if cut is None or self.pooled else [tensor[slice(*cut)] for tensor in tensors]

    def share_of(self, cut: tuple[int, int] | None) -> float:
        """Return the weight of the outputs of that slice in a pooled output."""
        if cut is None or self.pooled != "mean":
            return 1.0
        assert self.sliced_rows is not None
        return (cut[1] - cut[0]) / self.sliced_rows


def double_bytes(specs: Iterable[TensorSpec]) -> int:
    """Return the bytes of these tensors in float64, or of integers as they are."""
    return sum(
        spec.size_bytes * (DOUBLE_BYTES * (1 + spec.torch_dtype.is_complex) // spec.torch_dtype.itemsize)
        if spec.is_differentiable
        else spec.size_bytes
        for spec in specs
    )
