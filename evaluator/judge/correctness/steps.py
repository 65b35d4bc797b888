"""Integers and truth values that follow from floating-point numbers: the right ones besides the reference's own.

Rounding, comparing and choosing (argmax, top-k, sort) are *steps*. Next to one, the last bits of the number before it
decide the integer behind it, and no computation in the problem's precision knows them. So the float64 reference is run
once more, and every step in it is recorded:

- A chosen index is right where its number is within its limit of the number that the reference has chosen there. No
  index may be chosen twice where the reference chooses none twice.
- Any other integer is right where the native-precision reference has it, or the reference with the numbers before its
  steps moved within their limits.

The limit of a number before a step is the relative tolerance, plus the effect of the native-precision error or of the
rounding of inputs. Where the reference computes all numbers before a step without any error, as where they are inputs,
the limit is zero: then only equal numbers may change places.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Final

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from evaluator.judge.correctness.limits import NATIVE_FACTOR
from evaluator.judge.correctness.reference import Reference

__all__ = ["Steps"]

_CHOICES: Final = {
    # The position of the dimension among the arguments, the position of the index among the results, and whether all
    # indices differ.
    "aten::argmax": (1, None, False),
    "aten::argmin": (1, None, False),
    "aten::cummax": (1, 1, False),
    "aten::cummin": (1, 1, False),
    "aten::max": (1, 1, False),
    "aten::min": (1, 1, False),
    "aten::median": (1, 1, False),
    "aten::nanmedian": (1, 1, False),
    "aten::kthvalue": (2, 1, False),
    "aten::mode": (1, 1, False),
    "aten::topk": (2, 1, True),
    "aten::sort": (1, 1, True),
}
_OTHER_CHOICES: Final = {
    "aten::max_pool2d_with_indices",
    "aten::max_pool3d_with_indices",
}
_ROUNDINGS: Final = {f"aten::{name}" for name in ("round", "floor", "ceil", "trunc", "sign", "bucketize")}
_DIVISIONS: Final = {"aten::floor_divide", "aten::remainder", "aten::fmod"}
_MIXINGS: Final = {f"aten::{name}" for name in ("remainder", "fmod", "bitwise_xor", "bitwise_and")}
"""On integers: neighbours before such a step are far apart behind it."""
_COMPARISONS: Final = {f"aten::{name}" for name in ("gt", "ge", "lt", "le")}
"""Tests of equality are left out: moved numbers are never equal, and exact zeros would count for nothing."""
_RUNS: Final = 16
_MOVED_RUNS: Final = 6
_MOVED_ROUNDINGS: Final = 4.0
_TIE: Final = 2.0**-40
"""The least relative difference of numbers without a tie; unequal numbers of lower precision all differ by more."""
_SMALLEST: Final = 1e-300


@dataclass(frozen=True)
class _Step:
    """One step of a run. ``operands``: the numbers before it, in float64, by their place among the arguments.
    ``result``: the integers, where they are an index along ``dimension`` or converted numbers. A step that mixes
    integers has no operands: nothing is moved before it."""

    name: str
    operands: dict[int, torch.Tensor]
    result: torch.Tensor | None = None
    dimension: int | None = None
    distinct: bool = False
    stable: bool = False

    @property
    def chooses(self) -> bool:
        return self.name in _CHOICES or self.name in _OTHER_CHOICES

    @property
    def mixes(self) -> bool:
        return not self.operands


class _Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Note every step of a run. ``move`` returns the amount to add to an operand, by its step's number and its
    place."""

    def __init__(self, move: Callable[[int, int, _Step], torch.Tensor] | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.steps: list[_Step] = []
        self._move = move

    def __torch_dispatch__(
        self, func: Any, _types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        name = func._schema.name
        places = _places(name, args, kwargs)
        if not places:
            if name.removesuffix("_") in _MIXINGS and _is_integer(args[0]):
                self.steps.append(_Step(name, {}))
            return func(*args, **kwargs)
        operands = {place: args[place].detach().to(torch.float64, copy=True) for place in places}
        step = _Step(name, operands, stable=bool(kwargs.get("stable")))
        if self._move is not None:
            given = list(args)
            for place in places:
                moved = step.operands[place] + self._move(len(self.steps), place, step)
                given[place] = moved.to(args[place].dtype)
            args = tuple(given)
        result = func(*args, **kwargs)
        self.steps.append(_with_result(step, func, args, kwargs, result))
        return result


def _places(name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> list[int]:
    """Return the arguments that are numbers before a step."""
    if name in _CHOICES or name in _OTHER_CHOICES:
        return [0] if isinstance(args[0], torch.Tensor) else []  # there are ties among integers, too
    if name in _COMPARISONS:
        candidates = [0, 1]
    elif name == "aten::searchsorted":
        candidates = [1]
    elif (
        name in _ROUNDINGS
        or name in _DIVISIONS
        or (name == "aten::div" and kwargs.get("rounding_mode") is not None)
        or (name == "aten::_to_copy" and _is_whole(kwargs.get("dtype")))
    ):
        candidates = [0]
    else:
        return []
    return [place for place in candidates if len(args) > place and _is_floating(args[place])]


def _is_floating(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def _is_integer(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and _is_whole(value.dtype)


def _is_whole(dtype: torch.dtype | None) -> bool:
    """Whether a conversion to ``dtype`` rounds."""
    return not (dtype is None or dtype is torch.bool or dtype.is_floating_point or dtype.is_complex)


def _with_result(step: _Step, func: Any, args: Sequence[Any], kwargs: dict[str, Any], result: Any) -> _Step:
    if step.name == "aten::_to_copy":
        return replace(step, result=result.detach().clone())
    if step.name not in _CHOICES:
        return step
    place, which, distinct = _CHOICES[step.name]
    names = [argument.name for argument in func._schema.arguments]
    dimensions = [index for index, argument in enumerate(names) if argument == "dim"]
    if dimensions:
        place = dimensions[0]
    elif which is not None:
        return step  # the largest of all, without its index
    dimension = args[place] if len(args) > place else kwargs.get("dim", None if which is None else -1)
    index = result if which is None else result[which]
    return replace(step, result=index.detach().clone(), dimension=dimension, distinct=distinct)


class Steps:
    """The steps before the outputs of one call on ``values``. ``own`` computes the native-precision outputs; ``rtol``:
    the relative tolerance. Everything is computed on demand."""

    def __init__(
        self,
        reference: Reference,
        values: Sequence[Any],
        own: Callable[[], Sequence[torch.Tensor]],
        rtol: float,
        new_generator: Callable[[], torch.Generator],
    ) -> None:
        self._reference = reference
        self._values = values
        self._own = own
        self._rtol = rtol
        self._new_generator = new_generator

    def nearest(self, index: int, actual: torch.Tensor, exact: torch.Tensor) -> torch.Tensor:
        """Return output ``index`` of the reference, which holds integers, with those of ``actual`` where they are right
        as well."""
        if bool((actual == exact).all()):
            return exact
        own = self._own()[index]
        if self._limits is None or bool((actual == own).all()):
            return torch.where(actual == own, actual, exact)
        step = next((step for step in self._returned(exact) if step.chooses), None)
        if step is None:
            right = (actual == own) | self._is_undefined(exact) | self._is_possible(index, actual, exact)
        else:
            right = self._is_as_good(step, actual).reshape(exact.shape)
        return torch.where(right, actual, exact)

    @cached_property
    def _steps(self) -> list[_Step]:
        """The steps of the float64 reference."""
        return self._watched(self._reference.exact_outputs)

    @cached_property
    def _limits(self) -> list[dict[int, torch.Tensor]] | None:
        """The limit of each number before a step, by its step and place; ``None`` where that cannot be found."""
        try:
            steps, own = self._steps, self._watched(self._reference.native_outputs)
        except torch.OutOfMemoryError:
            raise
        except Exception:  # noqa: BLE001 - what compiles itself may refuse to be looked at
            return None
        if not _are_alike(steps, own):
            return None
        moves = self._moves(steps)
        return [
            {
                place: self._limit(operand, own_step.operands[place], moves[number].get(place))
                for place, operand in step.operands.items()
            }
            for number, (step, own_step) in enumerate(zip(steps, own, strict=True))
        ]

    def _limit(self, exact: torch.Tensor, own: torch.Tensor, move: torch.Tensor | None) -> torch.Tensor:
        error = (own - exact).abs_().nan_to_num_(0.0, 0.0, 0.0)
        if _are_whole(exact) and _are_whole(own):
            return error.zero_()  # they were rounded before, and had their limits there
        if not bool(error.any()) and (move is None or self._is_given(exact)):
            return error
        if move is None or not bool(move.any()):
            typical = (exact != 0) * error.square().mean().sqrt()
        else:
            # Rounding within a long sum may come to more than rounding its terms.
            typical = move * max(1.0, float(error.norm() / move.norm()))
        margin = torch.maximum(error, typical).mul_(NATIVE_FACTOR)
        return margin.add_(exact.abs().nan_to_num_(0.0, 0.0, 0.0), alpha=self._rtol)

    def _is_given(self, operand: torch.Tensor) -> bool:
        """Whether the operand is an input, or is determined by the rounded inputs."""
        if self._reference.epsilon > torch.finfo(torch.float64).eps:
            return True
        given = [value for value in self._values if isinstance(value, torch.Tensor) and value.shape == operand.shape]
        return any(torch.equal(value.double(), operand) for value in given if value.is_floating_point())

    def _moves(self, steps: Sequence[_Step]) -> list[dict[int, torch.Tensor]]:
        """Return the largest movement of each number before a step when the inputs are rounded otherwise."""
        largest: list[dict[int, torch.Tensor]] = [{} for _ in steps]
        relative = _MOVED_ROUNDINGS * self._reference.epsilon
        runs = self._reference.perturbed_outputs(self._values, relative, self._new_generator())
        for _ in range(_MOVED_RUNS):
            with _Watch() as watch:
                next(runs)
            if not _are_alike(steps, watch.steps):
                continue
            for known, step, moved in zip(largest, steps, watch.steps, strict=True):
                for place, operand in step.operands.items():
                    move = (moved.operands[place] - operand).abs_().nan_to_num_(0.0, 0.0, 0.0)
                    known[place] = torch.maximum(known[place], move) if place in known else move
        return largest

    def _watched(self, run: Callable[[Sequence[Any]], Any]) -> list[_Step]:
        with _Watch() as watch:
            run(self._values)
        steps: list[_Step] = watch.steps
        return steps

    def _returned(self, exact: torch.Tensor) -> Iterator[_Step]:
        """Yield steps whose result is the output ``exact``, or begins with it along its dimension, with that part of
        the result."""
        for step in self._steps:
            result, dimension = step.result, step.dimension
            if result is not None and dimension is not None and result.dim() == exact.dim() == step.operands[0].dim():
                result = result.narrow(dimension, 0, min(result.shape[dimension], exact.shape[dimension]))
            if result is None or result.numel() != exact.numel():
                continue
            if torch.equal(result.reshape(-1).to(exact.dtype), exact.reshape(-1)):
                yield replace(step, result=result)

    def _is_undefined(self, exact: torch.Tensor) -> torch.Tensor:
        """Return where the output ``exact`` was converted from a number outside of its dtype: any integer is right
        there."""
        found = torch.zeros_like(exact, dtype=torch.bool)
        for step in self._returned(exact):
            assert step.result is not None
            info, operand = torch.iinfo(step.result.dtype), step.operands[0]
            found |= ~((operand > float(info.min) - 1.0) & (operand < float(info.max) + 1.0)).reshape(exact.shape)
        return found

    def _is_as_good(self, step: _Step, actual: torch.Tensor) -> torch.Tensor:
        """Return where an index of ``actual`` leads to a number that is as good as the chosen one."""
        assert self._limits is not None
        assert step.result is not None
        number = next(number for number, known in enumerate(self._steps) if known.operands is step.operands)
        return _chosen(step, self._limits[number][0], actual.reshape(step.result.shape))

    def _is_possible(self, index: int, actual: torch.Tensor, exact: torch.Tensor) -> torch.Tensor:
        """Return where ``actual`` is a result of the reference with the numbers before its steps within their limits.

        It is one of the integers that were seen. Where nothing is chosen and no integers are mixed, it may also lie
        between them; between two hashes there is any other integer.
        """
        low = high = exact
        seen = torch.zeros_like(exact, dtype=torch.bool)
        for outputs in self._moved_runs():
            seen |= actual == outputs[index]
            low, high = torch.minimum(low, outputs[index]), torch.maximum(high, outputs[index])
        if any(step.chooses or step.mixes for step in self._steps):
            return seen
        return (low <= actual) & (actual <= high)

    def _moved_runs(self) -> Iterator[list[torch.Tensor]]:
        """Yield outputs with all numbers before steps at one end of their limits, at the other, and at random ones."""
        generator = self._new_generator()
        for sign in (1.0, -1.0, *[None] * _RUNS):
            with _Watch(partial(self._move, sign, generator)):
                outputs = self._reference.exact_outputs(self._values)
            yield outputs

    def _move(
        self, sign: float | None, generator: torch.Generator, number: int, place: int, step: _Step
    ) -> torch.Tensor:
        assert self._limits is not None
        operand = step.operands[place]
        if number >= len(self._limits) or self._limits[number][place].shape != operand.shape:
            return torch.zeros_like(operand)  # the operations depend on earlier decisions
        limit = self._limits[number][place]
        if sign is not None:
            return limit * (-sign if place else sign)
        if step.chooses and not step.stable:
            limit = limit + operand.abs().nan_to_num(0.0, 0.0, 0.0) * _TIE + _SMALLEST
        drawn = torch.rand(operand.shape, generator=generator, dtype=operand.dtype, device=operand.device)
        return drawn.mul_(2.0).sub_(1.0).mul_(limit)


def _are_alike(some: Sequence[_Step], others: Sequence[_Step]) -> bool:
    """Whether two runs have the same steps on operands of the same shapes."""

    def form(step: _Step) -> tuple[str, list[tuple[int, torch.Size]]]:
        return step.name, [(place, operand.shape) for place, operand in step.operands.items()]

    return [form(step) for step in some] == [form(step) for step in others]


def _are_whole(numbers: torch.Tensor) -> bool:
    return bool(((numbers == numbers.round()) | numbers.isnan()).all())


def _chosen(step: _Step, limit: torch.Tensor, actual: torch.Tensor) -> torch.Tensor:
    """Return where an index of ``actual`` leads to a number that is as good as the chosen one."""
    assert step.result is not None
    numbers, dimension, chosen, shape = step.operands[0], step.dimension, step.result, actual.shape
    if dimension is None or not numbers.dim():
        numbers, limit, dimension = numbers.reshape(-1), limit.reshape(-1), 0
        chosen, actual = chosen.reshape(-1), actual.reshape(-1)
    elif chosen.dim() < numbers.dim():
        chosen, actual = chosen.unsqueeze(dimension), actual.unsqueeze(dimension)
    index = actual.to(torch.int64)
    inside = (index >= 0) & (index < numbers.shape[dimension])
    index = torch.where(inside, index, chosen)
    there, here = (numbers.gather(dimension, each) for each in (index, chosen))
    allowed = limit.gather(dimension, index) + limit.gather(dimension, chosen)
    right = (there == here) | ((there - here).abs() <= allowed) | (there.isnan() & here.isnan())
    if step.stable:
        right &= (there != here) | (index == chosen)  # the order of equal numbers is defined
    if step.distinct:
        ordered = index.sort(dimension).values
        twice = (ordered.diff(dim=dimension) == 0).any(dimension, keepdim=True)
        right &= ~twice | (index == chosen)
    return (right & inside).reshape(shape)
