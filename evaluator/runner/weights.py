"""Which of the candidate's parameters stands for which of the reference's.

Both models are constructed under the same seed, so counterparts have equal values. A counterpart is
found by name and shape, else by value: the same tensor under another name, or its transpose. What was
folded, packed or computed while constructing has none, and its gradient cannot be compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from evaluator.dtypes import is_differentiable

__all__ = ["WeightMatch", "load_weights", "match_weights"]


@dataclass(frozen=True)
class WeightMatch:
    """Entry ``i`` belongs to the reference's weight ``i``; ``None`` where it has no counterpart."""

    parameters: tuple[torch.nn.Parameter | None, ...]
    transposed: tuple[bool, ...]
    differing: int
    """How many tensors agree with the reference in name and shape, but not in value."""

    @property
    def counterparts(self) -> int:
        """Bit i: the reference's weight i has a counterpart."""
        return sum(1 << index for index, parameter in enumerate(self.parameters) if parameter is not None)


def match_weights(model: torch.nn.Module, names: Sequence[str], values: Sequence[torch.Tensor]) -> WeightMatch:
    """Match the model's parameters with the reference's weights (``names`` and their ``values``)."""
    own = dict(model.named_parameters())
    named = {**own, **dict(model.named_buffers())}
    taken: set[str] = set()
    found: dict[int, tuple[torch.nn.Parameter, bool]] = {}
    differing = 0
    for index, (name, value) in enumerate(zip(names, values, strict=True)):
        tensor = named.get(name)
        if tensor is None or tensor.shape != value.shape or tensor.dtype != value.dtype:
            continue
        if not _equal(tensor, value):
            differing += 1
        elif name in own:
            found[index] = (own[name], False)
            taken.add(name)
    for index, value in enumerate(values):
        if index in found:
            continue
        for name, parameter in own.items():
            if name in taken or parameter.dtype != value.dtype:
                continue
            if parameter.shape == value.shape and _equal(parameter, value):
                found[index] = (parameter, False)
            elif value.dim() == 2 and parameter.shape == value.t().shape and _equal(parameter, value.t()):
                found[index] = (parameter, True)
            else:
                continue
            taken.add(name)
            break
    return WeightMatch(
        tuple(found[index][0] if index in found else None for index in range(len(names))),
        tuple(found[index][1] if index in found else False for index in range(len(names))),
        differing,
    )


def load_weights(model: torch.nn.Module, names: Sequence[str], values: Sequence[torch.Tensor]) -> WeightMatch:
    """Copy the reference's values into every tensor that agrees in name and shape, then match again."""
    named = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    with torch.no_grad():
        for name, value in zip(names, values, strict=True):
            tensor = named.get(name)
            if tensor is not None and tensor.shape == value.shape and is_differentiable(tensor):
                tensor.copy_(value)
    return match_weights(model, names, values)


def _equal(tensor: torch.Tensor, value: torch.Tensor) -> bool:
    return torch.equal(tensor.detach(), value)
