"""The candidate's counterparts of the reference's parameters and buffers, and the transfer of other values to them.

Both models are constructed under the same seed, so counterparts have equal values. A counterpart is found by name and
shape, or by a name that ends alike (as of a model within another), else by value. By value it is the same tensor under
another name, its transpose, or the tensor with its dimensions of extent one elsewhere. A weight that was folded, packed
or computed while constructing has none: its gradient cannot be compared, and it takes no other values.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from evaluator.dtypes import is_differentiable
from evaluator.protocol.control_page import WeightReport

__all__ = ["State", "WeightMatch", "load_weights", "match_weights", "take_weights", "write_weights"]


@dataclass(frozen=True)
class State:
    """The reference's parameters, of which there are ``weights``, then buffers: their ``names`` and ``values``."""

    names: Sequence[str]
    values: Sequence[torch.Tensor]
    weights: int


@dataclass
class WeightMatch:
    """Entry ``i`` belongs to the reference's weight ``i``; ``None`` where it has no counterpart.

    The other fields concern parameters and buffers alike, by index. ``taking``: the tensor that takes the value, and
    whether it is transposed. ``named``: found by name. ``differing``: a tensor agrees with the reference in name and
    shape, but not in value. ``told``: the model loads state dictionaries in its own way, so it takes every value.
    """

    parameters: list[torch.nn.Parameter | None] = field(default_factory=list)
    transposed: list[bool] = field(default_factory=list)
    taking: dict[int, tuple[torch.Tensor, bool]] = field(default_factory=dict)
    named: set[int] = field(default_factory=set)
    differing: set[int] = field(default_factory=set)
    told: bool = False

    def report(self, count: int) -> WeightReport:
        """Return the report for the judge, of ``count`` parameters and buffers."""
        everything = range(count) if self.told else ()
        return WeightReport(
            counterparts=_bits(index for index, weight in enumerate(self.parameters) if weight is not None),
            transposed=_bits(index for index, transposed in enumerate(self.transposed) if transposed),
            differing=_bits(self.differing),
            taking=_bits({*self.taking, *everything}),
            named=_bits({*self.named, *everything}),
        )


def match_weights(model: torch.nn.Module, state: State) -> WeightMatch:
    """Match the model's parameters and buffers with the reference's."""
    # Tensors of another layout (oneDNN's, sparse), or without values (on the device "meta"), cannot be compared.
    parameters = {
        name: weight for name, weight in model.named_parameters(remove_duplicate=False) if _has_values(weight)
    }
    buffers = {name: value for name, value in model.named_buffers(remove_duplicate=False) if _has_values(value)}
    named: dict[str, torch.Tensor] = {**parameters, **buffers}
    found = WeightMatch([None] * state.weights, [False] * state.weights, told=_loads_in_its_own_way(model))
    taken: set[int] = set()

    def note(index: int, tensor: torch.Tensor, *, transposed: bool, by_name: bool) -> None:
        taken.add(id(tensor))
        if _can_be_written(tensor):
            found.taking[index] = tensor, transposed
            if by_name:
                found.named.add(index)
        alike = transposed or tensor.shape == state.values[index].shape
        if index < state.weights and isinstance(tensor, torch.nn.Parameter) and alike:
            found.parameters[index], found.transposed[index] = tensor, transposed

    for index, (name, value) in enumerate(zip(state.names, state.values, strict=True)):
        tensor = _called(named, name)
        if tensor is None or tensor.dtype != value.dtype:
            continue
        if tensor.shape == value.shape and not _equal(tensor, value):
            if name in named:
                found.differing.add(index)
        elif _same_but_for_ones(tensor, value):
            note(index, tensor, transposed=False, by_name=True)
    for index, value in enumerate(state.values):
        if _is_matched(found, index):
            continue
        for tensor in _one_each([*parameters.values(), *named.values()]):
            if id(tensor) in taken or tensor.dtype != value.dtype:
                continue
            if _same_but_for_ones(tensor, value):
                note(index, tensor, transposed=False, by_name=False)
            elif value.dim() == 2 and tensor.shape == value.t().shape and _equal(tensor, value.t()):
                note(index, tensor, transposed=True, by_name=False)
            else:
                continue
            break
    return found


def load_weights(model: torch.nn.Module, state: State) -> WeightMatch:
    """Copy the reference's values into every tensor that agrees in name and shape, then match again."""
    named = {
        **dict(model.named_parameters(remove_duplicate=False)),
        **dict(model.named_buffers(remove_duplicate=False)),
    }
    for name, value in zip(state.names, state.values, strict=True):
        tensor = _called(named, name)
        if tensor is not None and _has_values(tensor) and tensor.shape == value.shape and is_differentiable(tensor):
            _write(tensor, value)
    _tell(model, state)
    return match_weights(model, state)


def take_weights(model: torch.nn.Module, match: WeightMatch, state: State, indexes: Collection[int]) -> None:
    """Copy the reference's values of ``indexes`` into their counterparts in ``match``.

    A model that loads state dictionaries in its own way gets them as well.
    """
    write_weights(match, state, indexes)
    _tell(model, state)


def write_weights(match: WeightMatch, state: State, indexes: Collection[int]) -> None:
    """Copy the reference's values of ``indexes`` into their counterparts in ``match``, without informing the model."""
    for index in indexes:
        if index in match.taking:
            tensor, transposed = match.taking[index]
            value = state.values[index]
            _write(tensor, value.t() if transposed else value.reshape(tensor.shape))


def _tell(model: torch.nn.Module, state: State) -> None:
    """Give the reference's state to a model that loads state dictionaries in its own way.

    A model that refuses it keeps the values that were written to its tensors. Torch's own loading reports other shapes
    only at its end, and another one may accept the names of its own model alone.
    """
    if not _loads_in_its_own_way(model):
        return
    values = {name: value.clone() for name, value in zip(state.names, state.values, strict=True)}
    with contextlib.suppress(Exception):
        accepted = inspect.signature(model.load_state_dict, follow_wrapped=False).parameters
        takes_strict = "strict" in accepted or any(each.kind is each.VAR_KEYWORD for each in accepted.values())
        model.load_state_dict(values, **({"strict": False} if takes_strict else {}))


def _loads_in_its_own_way(model: torch.nn.Module) -> bool:
    return any(
        _loads_alone(module)
        or bool(module._load_state_dict_pre_hooks)
        or not type(module)._load_from_state_dict.__module__.startswith("torch.")
        for module in model.modules()
    )


def _loads_alone(module: torch.nn.Module) -> bool:
    hooks: Mapping[Any, Any] = module._load_state_dict_post_hooks
    return type(module).load_state_dict is not torch.nn.Module.load_state_dict or bool(hooks)


def _called(named: Mapping[str, torch.Tensor], name: str) -> torch.Tensor | None:
    """Return the tensor of this name, or the only one whose name ends with it."""
    if name in named:
        return named[name]
    alike = _one_each([tensor for own, tensor in named.items() if own.endswith(f".{name}")])
    return alike[0] if len(alike) == 1 else None


def _one_each(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    return list({id(tensor): tensor for tensor in tensors}.values())


def _is_matched(found: WeightMatch, index: int) -> bool:
    return index in found.taking or (index < len(found.parameters) and found.parameters[index] is not None)


def _has_values(tensor: torch.Tensor) -> bool:
    return tensor.layout is torch.strided and not tensor.is_meta


def _can_be_written(tensor: torch.Tensor) -> bool:
    """Whether each element has a place of its own."""
    return all(stride or extent < 2 for stride, extent in zip(tensor.stride(), tensor.shape, strict=True))


def _write(tensor: torch.Tensor, value: torch.Tensor) -> None:
    with torch.inference_mode() if tensor.is_inference() else torch.no_grad():
        tensor.copy_(value)


def _same_but_for_ones(tensor: torch.Tensor, value: torch.Tensor) -> bool:
    """Whether the two are equal, but for dimensions of extent one."""
    if [extent for extent in tensor.shape if extent != 1] != [extent for extent in value.shape if extent != 1]:
        return False
    return _equal(tensor.reshape(value.shape), value)


def _equal(tensor: torch.Tensor, value: torch.Tensor) -> bool:
    return torch.equal(tensor.detach(), value)


def _bits(indexes: Iterable[int]) -> int:
    return sum(1 << index for index in indexes)
