"""Secret places in the inputs of timed calls: rows and values that an ordinary draw never has.

Timed calls once had only ordinary values, and a spot check of a few rows could tell. A softmax without its maximum
passed if it was careful wherever the check found something special. So every mixed input has a few secret rows that are
loud, quiet or wide-ranged, and a few secret values that a sum needs. They are too few to be met by chance or to affect
a latency. Where calls are compared in some rows only, these rows are among them.

A bounded function turns a large value into an ordinary one, and a sum of its many results does not need any single one.
So one more row has two *levels* that change in secret places: any part that is left out differs from the rest. Where
rows depend on each other, the whole input is *still* in some calls. It then has only a background, on which such a
function is nearly zero, and a few ordinary values.

Making such rows takes dozens of short kernels, and a call should not wait for their launches. So a *stock* of short
ones is made once in an evaluation, and each call copies some of it to its secret places.
"""

from __future__ import annotations

import math
import random
import secrets
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import partial
from itertools import pairwise
from typing import Final

import torch

from evaluator.dtypes import as_signed, tensor_on
from evaluator.problems.problem import Problem
from evaluator.protocol.shared_memory import TensorSpec

__all__ = ["Planter", "Strength", "fill_wide", "planter_of", "swap_edge_rows"]

_WIDE_BITS: Final = 10
_SHARE: Final = 64
"""A planted run covers at most one of this many elements of its tensor, and so do all single places together."""
_MIN_FAN_IN: Final = 64
"""From this many input elements for each output element, the output is a sum of which a share could be left out."""
_FEW_OUTPUTS: Final = 64
"""Fewer outputs than this depend on everything: loud values would hide the others."""
_MIN_TERMS: Final = 4
_MAX_TERMS: Final = 64
_TIMES_THE_LIMIT: Final = 4.0
_MIN_TERM: Final = 0.75
_MIN_STILL: Final = 0.1
_LARGE: Final = 512.0
_LARGE_PLACES: Final = 4
_LOUD: Final = 64.0
_LOUD_AMONG_FEW: Final = 8.0
_MILD: Final = 4.0
_STILL_CALLS: Final = 0.5
"""The share of the calls with still inputs, where rows depend on each other; or with levels in one of few rows."""
_PIECE: Final = 2**22
_STILL: Final = {torch.float16: 2.0**-12}
_STILL_ELSEWHERE: Final = 2.0**-20
_FAR: Final = 24.0
"""Ordinary numbers that are lowered by this multiple of the input's root mean square have a sigmoid of nearly zero."""
_ORDINARY: Final = 2.0
_QUIET: Final = 2.0**-10
_QUIET_HALF: Final = 2.0**-6
_MAX_HALF: Final = 2.0**12
_SQUARED_HALF: Final = 200.0
"""The square of this is finite in float16."""
_STOCKED: Final = 64
"""The size of a stock for each kind: about the number of calls in an evaluation. So a left-out share of a row that
shows in one of ten still shows."""
_STOCKED_BYTES: Final = 2**23
"""No stock takes more bytes than this; longer runs are made in place. The memory plan has no room for them, and their
launches are the least part of their time."""


class Strength(IntEnum):
    """The size of planted values that leaves the reference finite.

    ``LINEAR``: as much as all other terms of a sum together, divided by the number of places. ``ROOT``: the same for
    the square. ``MILD``: four times the root mean square of the input.
    """

    NONE = 0
    MILD = 1
    ROOT = 2
    LINEAR = 3


@dataclass(frozen=True)
class Planter:
    """The choice of planted places and values. ``rows``: extent of every tensor's first dimension, where rows are
    independent. ``outputs``: elements of the smallest floating-point output. ``tolerance``: ``atol + rtol`` of the
    problem."""

    rows: int | None
    outputs: int
    tolerance: float
    strength: Strength = Strength.LINEAR
    stocks: dict[Hashable, torch.Tensor] = field(default_factory=dict, compare=False, repr=False)
    """The stock, by input, kind, shape, scale and dtype: runs of each kind, [kinds, count, length], or rows with
    levels, [count, size]."""

    def rows_of(self, seed: int) -> list[int]:
        """Return the planted rows of the inputs of ``seed``, one of each kind, in ascending order."""
        return sorted(set(self._rows_by_kind(seed))) if self.rows and self.strength else []

    def is_still(self, seed: int) -> bool:
        """Whether inputs of ``seed`` are still, unless gradients are compared. This applies to those with many elements
        for each element of the output."""
        stream = random.Random(f"still {seed}")  # noqa: S311 - it only spreads a secret seed
        return bool(self.strength) and not self.rows and stream.random() < _STILL_CALLS

    def plant(self, tensor: torch.Tensor, scale: float, index: int, seed: int, *, gradients: bool) -> None:
        """Plant in a contiguous floating-point tensor, input ``index``, whose root mean square is about ``scale``.
        ``gradients``: whether the call's gradients are compared. Gradients of still inputs are mere rounding errors, as
        large as each side computes them, so these inputs are not still."""
        if not self.strength or tensor.numel() < _SHARE:
            return
        stream = random.Random(f"plants {index} {seed}")  # noqa: S311 - it only spreads a secret seed
        rows = self._rows_by_kind(seed)
        values: dict[int, float] = {}
        if not gradients and self.is_still(seed) and tensor.numel() / self.outputs >= _MIN_FAN_IN:
            self._plant_still(values, tensor, scale, stream)
        else:
            # Where rows depend on each other, loud values in one affect all: half of the calls have none.
            if self.rows or stream.random() < 0.5:
                self._plant_runs(tensor, scale, index, rows, stream)
            self._plant_levels(tensor, scale, index, rows[-1], stream)
            self._add_terms(values, tensor, scale, rows, stream)
            self._add_special(values, tensor, scale, stream)
        places = stream.sample(sorted(values), min(len(values), tensor.numel() // _SHARE))
        planted = tensor_on(tensor.device, [values[place] for place in places], tensor.dtype)
        tensor.view(-1)[tensor_on(tensor.device, places, torch.int64)] = planted

    def _rows_by_kind(self, seed: int) -> list[int]:
        """Return a row for each kind of planting, the same ones in all inputs; zeros where rows are not independent."""
        stream = random.Random(f"rows {seed}")  # noqa: S311 - it only spreads a secret seed
        if not self.rows:
            return [0] * _KINDS
        if self.rows >= _KINDS:
            return stream.sample(range(self.rows), _KINDS)
        return stream.choices(range(self.rows), k=_KINDS)

    def _plant_runs(
        self, tensor: torch.Tensor, scale: float, index: int, rows: Sequence[int], stream: random.Random
    ) -> None:
        flat, size = tensor.view(-1), self._row_size(tensor)
        length = max(1, min(tensor.shape[-1], size, tensor.numel() // _SHARE))
        factor = _MILD if self.strength is Strength.MILD else _LOUD_AMONG_FEW if self._few else _LOUD
        # Wide-ranged values are mostly small beside their largest elements.
        kinds = _RUNS[: -1 if self._few else None]
        # A whole row of the last dimension, where it is not too long.
        step = length if size % length == 0 else 1
        starts = [row * size + step * stream.randrange((size - length) // step + 1) for row in rows[: len(kinds)]]
        runs = [flat[start : start + length] for start in starts]
        seeds = [stream.getrandbits(63) for _ in kinds]
        make = partial(_run_each, kinds, factor, scale)
        stock = self._stock((index, "runs", factor), tensor, scale, (len(kinds), _STOCKED, length), make)
        if stock is None:
            for kind, run, seed in zip(kinds, runs, seeds, strict=True):
                kind(run, factor, scale, seed)
            return
        chosen = [stock[number, seed % _STOCKED] for number, seed in enumerate(seeds)]
        if all(after - before >= length for before, after in pairwise(sorted(starts))):
            torch._foreach_copy_(runs, chosen)
            return
        for run, each in zip(runs, chosen, strict=True):  # the last one wins, each time that the seed is used
            run.copy_(each)

    def _stock(
        self,
        kind: tuple[Hashable, ...],
        like: torch.Tensor,
        scale: float,
        shape: tuple[int, ...],
        make: Callable[[torch.Tensor], None],
    ) -> torch.Tensor | None:
        """Return normal numbers of this ``shape``, processed by ``make``: the same in each call with a tensor ``like``
        this one. ``None`` where they would take too much memory."""
        if math.prod(shape) * like.element_size() > _STOCKED_BYTES:
            return None
        key = (kind, shape, scale, like.dtype)
        if key not in self.stocks:
            generator = torch.Generator(like.device).manual_seed(secrets.randbits(63))
            made = torch.empty(shape, dtype=like.dtype, device=like.device).normal_(0.0, scale, generator=generator)
            make(made)
            self.stocks[key] = made
        return self.stocks[key]

    def _add_terms(
        self, values: dict[int, float], tensor: torch.Tensor, scale: float, rows: Sequence[int], stream: random.Random
    ) -> None:
        """Add values that each show in a sum: without one of them, it is off by several times its limit."""
        fan_in = tensor.numel() / self.outputs
        if fan_in < _MIN_FAN_IN:
            return
        size, count = self._row_size(tensor), self._terms
        amounts = {Strength.LINEAR: fan_in / count, Strength.ROOT: math.sqrt(fan_in / count)}
        allowed = [amount for strength, amount in amounts.items() if strength <= self.strength] or [_MILD]
        # Beside linear terms, a sum of squares shows nothing else; a sum of magnitudes does not show root terms.
        chosen = zip(rows[len(_RUNS) : -1], allowed, strict=False) if self.rows else [(0, stream.choice(allowed))]
        for row, amount in chosen:
            for _ in range(count):
                place = row * size + stream.randrange(size)
                # All terms differ: with equal ones, a maximum has a gradient for each of them that is equally right.
                share = stream.uniform(_MIN_TERM, 1.0) * stream.choice((-1.0, 1.0))
                values[place] = _bounded(amount * scale, tensor.dtype) * share

    def _plant_levels(self, tensor: torch.Tensor, scale: float, index: int, row: int, stream: random.Random) -> None:
        """Plant two levels in one row, which take turns after a secret number of elements: one, or up to the whole
        row."""
        size = self._row_size(tensor)
        if not self.rows or size < _MIN_FAN_IN:
            return
        if self.rows < _KINDS and stream.random() >= _STILL_CALLS:
            return  # the other kinds are in the same rows
        chosen, target = stream.getrandbits(63), tensor.view(-1)[row * size : (row + 1) * size]
        stock = self._stock((index, "levels"), tensor, scale, (_STOCKED, size), partial(_level_each, scale))
        if stock is None:
            _level(target, scale, chosen)
        else:
            target.copy_(stock[chosen % _STOCKED])

    def _plant_still(self, values: dict[int, float], tensor: torch.Tensor, scale: float, stream: random.Random) -> None:
        """Plant a background, and a few ordinary values in it. Without one of these, a sum of a bounded function's
        results is off by several times the limit."""
        # A hyperbolic tangent of zero is zero, and a sigmoid far below zero is nearly zero.
        far = self.strength is Strength.LINEAR and tensor.dtype is not torch.float16 and stream.random() < 0.5
        tensor.mul_(_STILL.get(tensor.dtype, _STILL_ELSEWHERE)).sub_(_FAR * scale if far else 0.0)
        for _ in range(self._terms):
            # Of all sizes: with equal ones, the mean over a share is right if it has its share of them.
            share = stream.uniform(_MIN_STILL, 1.0) * stream.choice((-1.0, 1.0))
            values[stream.randrange(tensor.numel())] = _ORDINARY * scale * share

    def _add_special(self, values: dict[int, float], tensor: torch.Tensor, scale: float, stream: random.Random) -> None:
        info = torch.finfo(tensor.dtype)
        special = [0.0, -0.0, 1.0, -1.0, info.tiny, -info.tiny, info.eps, -info.eps]
        if not self._few:
            large = scale * (_MILD if self.strength is Strength.MILD else _LARGE)
            large = min(large, _SQUARED_HALF) if tensor.dtype is torch.float16 else _bounded(large, tensor.dtype)
            special += [large * stream.uniform(-1.0, 1.0) for _ in range(_LARGE_PLACES)]
        for value in special:
            values[stream.randrange(tensor.numel())] = value

    @property
    def _terms(self) -> int:
        """The number of terms of a sum, such that each is several times its limit."""
        return max(_MIN_TERMS, min(_MAX_TERMS, round(1 / (_TIMES_THE_LIMIT * self.tolerance))))

    @property
    def _few(self) -> bool:
        return self.outputs < _FEW_OUTPUTS

    def _row_size(self, tensor: torch.Tensor) -> int:
        return tensor.numel() // self.rows if self.rows else tensor.numel()


def _bounded(value: float, dtype: torch.dtype) -> float:
    most = _MAX_HALF if dtype is torch.float16 else torch.finfo(dtype).max / 2**4
    return max(-most, min(most, value))


_Each = float | torch.Tensor
"""One number for all rows, or a tensor [rows, 1] with one for each."""


def _level(row: torch.Tensor, scale: float, seed: int) -> None:
    """Give a row, [size], two levels that take turns."""
    low, high, length, start = _levels(len(row), scale, seed)
    for piece in row.split(_PIECE):  # type: ignore[no-untyped-call]
        _add_levels(piece, low, high, length, start)
        start += len(piece)


def _level_each(scale: float, rows: torch.Tensor) -> None:
    """Give each of these rows, [rows, size], levels of its own."""
    drawn = zip(*(_levels(rows.shape[1], scale, secrets.randbits(63)) for _ in rows), strict=True)
    _add_levels(rows, *(tensor_on(rows.device, each, torch.float64).view(-1, 1) for each in drawn))


def _add_levels(rows: torch.Tensor, low: _Each, high: _Each, length: _Each, start: _Each) -> None:
    """Make one or several rows quiet, and add levels to each, as ``_levels`` says."""
    places = torch.arange(rows.shape[-1], device=rows.device) + start
    rows.mul_(_QUIET_HALF).add_(torch.where(places // length % 2 == 0, low, high).to(rows.dtype))


def _levels(size: int, scale: float, seed: int) -> tuple[float, float, int, int]:
    """Return two levels of a row of ``size`` elements, the length of their runs, and an offset. The offset is the
    number of elements of the first two runs that lie before the row."""
    stream = random.Random(seed)  # noqa: S311 - it only spreads a secret seed
    low, high = stream.sample((0.0, -_ORDINARY * scale, _ORDINARY * scale), 2)
    length = 2 ** stream.randrange(size.bit_length())
    return low, high, length, stream.randrange(2 * length)


def _run_each(kinds: Sequence[_Run], factor: float, scale: float, runs: torch.Tensor) -> None:
    """Make runs of each kind, [kinds, runs, length]."""
    for kind, several in zip(kinds, runs, strict=True):
        kind(several, factor, scale, secrets.randbits(63))


def _raise(run: torch.Tensor, factor: float, _scale: float, _seed: int) -> None:
    """Make a run loud and positive: too large for an exponential."""
    run.mul_(factor)
    if _is_precise(run):
        run.add_(_largest(run))
    _confine(run)


def _lower(run: torch.Tensor, factor: float, _scale: float, _seed: int) -> None:
    """Make a run loud and far below zero: all its exponentials are zero."""
    run.mul_(factor)
    if _is_precise(run):
        run.sub_(_largest(run), alpha=2.0)
    _confine(run)


def _confine(run: torch.Tensor) -> None:
    if run.dtype is torch.float16:
        run.mul_((_SQUARED_HALF / _largest(run)).clamp(max=1.0))


def _largest(run: torch.Tensor) -> torch.Tensor:
    """Return the largest magnitude of a run, or of each of several, along the last dimension, which is kept."""
    return run.abs().amax(dim=-1, keepdim=True)


def _is_precise(run: torch.Tensor) -> bool:
    """Whether the dtype has enough precision for a variance of numbers far from zero, computed from their squares."""
    return run.dtype.itemsize > 2


def _hush(run: torch.Tensor, _factor: float, _scale: float, _seed: int) -> None:
    """Make a run so small that a constant added for safety, an epsilon, matters."""
    run.mul_(_QUIET_HALF if run.dtype is torch.float16 else _QUIET)


def _widen(run: torch.Tensor, factor: float, scale: float, seed: int) -> None:
    # Values are not cut off: those at the bound would be equal, and any of them a right choice of the largest.
    most = _bounded(scale * (_MILD if factor == _MILD else 2.0**_WIDE_BITS), run.dtype)
    fill_wide(run, scale, torch.Generator(run.device).manual_seed(seed), most=most)
    _confine(run)


_Run = Callable[[torch.Tensor, float, float, int], None]
"""An operation on one run or on several, along the last dimension."""
_RUNS: Final[tuple[_Run, ...]] = (_raise, _lower, _hush, _widen)
_KINDS: Final = len(_RUNS) + 3
"""The kinds of planting in a row: each kind of run, terms as large as a sum and as a sum of squares, and levels."""


def fill_wide(piece: torch.Tensor, scale: float, generator: torch.Generator, *, most: float | None = None) -> None:
    """Fill with magnitudes from 2⁻¹⁰ times ``scale`` to ``most`` (default: 2¹⁰ times ``scale``), of either sign."""
    piece.uniform_(-1.0, 1.0, generator=generator)
    least = math.log2(scale) - _WIDE_BITS
    bits = 2 * _WIDE_BITS if most is None else math.log2(most) - least
    magnitude = piece.abs().mul_(bits).add_(least).exp2_()
    torch.copysign(magnitude, piece, out=piece)


def swap_edge_rows(tensors: Sequence[torch.Tensor], rows: int, seed: int) -> None:
    """Swap the first and the last row with secret others, the same in all tensors. So a row that the problem makes
    special is at another place in each call."""
    stream = random.Random(f"edges {seed}")  # noqa: S311 - it only spreads a secret seed
    source: dict[int, int] = {}
    for edge in (0, rows - 1):
        other = stream.randrange(rows)
        source[edge], source[other] = source.get(other, other), source.get(edge, edge)
    moved = [(row, origin) for row, origin in source.items() if row != origin]
    for tensor in map(as_signed, tensors if moved else ()):
        # In pieces: a tensor may have no more rows than these.
        rows_moved = [(tensor[row].view(-1), tensor[origin].view(-1)) for row, origin in moved]
        for start in range(0, max(1, rows_moved[0][0].numel()), _PIECE):
            targets, origins = ([row[start : start + _PIECE] for row in side] for side in zip(*rows_moved, strict=True))
            torch._foreach_copy_(targets, [each.clone() for each in origins])


def planter_of(problem: Problem, precision: str, rows: int | None, outputs: Sequence[TensorSpec]) -> Planter:
    """Return the planter of the inputs of ``problem``: places, rows and tolerance. ``rows``: the common first extent of
    all its tensors."""
    tolerance = problem.tolerance(precision)
    floating = [spec for spec in outputs if spec.torch_dtype.is_floating_point]
    elements = [math.prod(spec.shape) for spec in floating or outputs]
    return Planter(
        rows=rows if problem.row_independent else None,
        outputs=max(1, min(elements, default=1)),
        tolerance=tolerance.atol + tolerance.rtol,
    )
