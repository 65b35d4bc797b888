"""The locations of a tensor's wrong elements, as the smallest part of it that can be named. Uses counts only."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import torch

__all__ = ["ErrorSpread", "Pattern"]

_LONGEST: Final = 2**16
"""Longer dimensions are not counted index by index."""
_CYCLES: Final = (4096, 2520)
"""Flat positions are counted modulo these: every n-th element shows where n divides one of them."""

_DENSE: Final = 0.2
"""The least wrong share of a named location: a ReLU is right by chance in half of the elements that were never
computed."""
_NARROWER: Final = 0.9
_MOST: Final = 0.95
_CHANCE: Final = 1e-5
"""The chance limit for a named location: with equally frequent errors elsewhere, an error-free rest must be at least as
improbable."""
_MOST_OF_ALL: Final = 0.9
"""A longer stretch in memory is not named: it says nothing, since a first and a last wrong element always exist."""
_BLOCKS: Final = (1024, 512, 256, 128, 64, 32, 16, 8, 4)


@dataclass(frozen=True)
class Pattern:
    """A pattern of errors: ``code`` is for programs, ``sentence`` for people."""

    code: str
    sentence: str


@dataclass(frozen=True)
class _Place:
    """A location with all wrong elements: ``share`` of the tensor, ``room`` elements of it."""

    share: float
    room: float
    pattern: Pattern


class ErrorSpread:
    """The spread of wrong elements over a tensor: counts for each index along each dimension, and little more."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self._shape = shape
        self._elements = math.prod(shape)
        self._along = {
            dimension: torch.zeros(extent, dtype=torch.int64)
            for dimension, extent in enumerate(shape)
            if 1 < extent <= _LONGEST
        }
        self._cycles = {cycle: torch.zeros(cycle, dtype=torch.int64) for cycle in _CYCLES}
        self._first, self._last = self._elements, -1
        self.strides = [math.prod(shape[dimension + 1 :]) for dimension in range(len(shape))]
        self.wrong = 0

    def count(self, places: torch.Tensor) -> None:
        """Take in the flat positions of more wrong elements, in ascending order."""
        self.wrong += places.numel()
        self._first = min(self._first, int(places[0]))
        self._last = max(self._last, int(places[-1]))
        for dimension, counts in self._along.items():
            index = places.div(self.strides[dimension], rounding_mode="floor").remainder_(counts.numel())
            counts.add_(torch.bincount(index, minlength=counts.numel()).cpu())
        for cycle, counts in self._cycles.items():
            counts.add_(torch.bincount(places.remainder(cycle), minlength=cycle).cpu())

    def pattern(self) -> Pattern | None:
        """Return the smallest part of the tensor that can be named and that has every wrong element."""
        if self._elements < 2 or self.wrong == self._elements:
            return None
        if self.wrong == 1:
            return Pattern("single", "it is the only element that is wrong")
        places = [place for place in self._named_places() if self._is_told(place)]
        if not places:
            return None
        best = places[0]
        for place in places[1:]:
            # An earlier location is simpler: a later one must be clearly smaller.
            if place.share < _NARROWER * best.share:
                best = place
        share = self.wrong / best.room
        if share < _MOST:
            return Pattern(best.pattern.code, f"{best.pattern.sentence}; of those, {100 * share:.0f} % are")
        return best.pattern

    def _is_told(self, place: _Place) -> bool:
        """Whether wrong elements are dense there, and their absence elsewhere is not chance."""
        beside = self._elements - place.room
        wrong = (self.wrong + 0.5) / (place.room + 1)
        return self.wrong >= _DENSE * place.room and (beside + 1) * (1 - wrong) ** beside <= _CHANCE

    def _named_places(self) -> Iterable[_Place]:
        runs: dict[int, tuple[int, int]] = {}
        for dimension, counts in self._along.items():
            hit = counts.nonzero().view(-1).tolist()
            extent = counts.numel()
            runs[dimension] = (hit[0], hit[-1])
            if len(hit) < extent:
                sentence = _name_indices(hit, extent, *self.words_for(dimension))
                if sentence is not None:
                    share = len(hit) / extent
                    yield _Place(share, share * self._elements, sentence)
        block = self._block(runs)
        if block is not None:
            yield block
        for cycle, counts in self._cycles.items():
            hit = counts.nonzero().view(-1).tolist()
            step = _regular(hit, cycle) if self._elements > cycle else None
            if step is not None:
                yield _Place(
                    1 / step,
                    self._elements / step,
                    Pattern("every_nth", f"every {_ordinal(step)} element in memory order, from {hit[0]} on, is wrong"),
                )
        span = self._last - self._first + 1
        if span <= _MOST_OF_ALL * self._elements:
            pattern = _name_run(self._first, self._last, self._elements, "element", "elements")
            if len(self._shape) > 1:
                pattern = Pattern(pattern.code, f"{pattern.sentence} (counted in memory order)")
            yield _Place(span / self._elements, span, pattern)

    def _block(self, runs: dict[int, tuple[int, int]]) -> _Place | None:
        """Return a box that is smaller than the tensor along at least two dimensions."""
        narrow = {dimension: run for dimension, run in runs.items() if run[1] - run[0] + 1 < self._shape[dimension]}
        if len(narrow) < 2:
            return None
        share, parts = 1.0, []
        for dimension, (first, last) in narrow.items():
            one, many = self.words_for(dimension)
            share *= (last - first + 1) / self._shape[dimension]
            parts.append(f"{one} {first}" if first == last else f"{many} {first} to {last}")
        return _Place(share, share * self._elements, Pattern("block", f"only {' and '.join(parts)} are wrong"))

    def words_for(self, dimension: int) -> tuple[str, str]:
        """Return the words for one index along ``dimension``, and for several."""
        if len(self._shape) == 1:
            return "element", "elements"
        if len(self._shape) == 2:
            return ("row", "rows") if dimension == 0 else ("column", "columns")
        return f"index (dimension {dimension})", f"indices (dimension {dimension})"


def _name_indices(hit: Sequence[int], extent: int, one: str, many: str) -> Pattern | None:
    """Return a pattern for the indices ``hit``, some of ``extent``; ``None`` without one."""
    if hit[-1] - hit[0] + 1 == len(hit):
        return _name_run(hit[0], hit[-1], extent, one, many)
    step = _regular(hit, extent)
    if step is not None:
        return Pattern("every_nth", f"every {_ordinal(step)} {one}, from {hit[0]} on, is wrong, and no other")
    known = set(hit)
    missed = [index for index in range(extent) if index not in known]
    step = _regular(missed, extent)
    if step is not None:
        return Pattern(
            "all_but_every_nth", f"only every {_ordinal(step)} {one}, from {missed[0]} on, is right, and no other"
        )
    return None


def _name_run(first: int, last: int, extent: int, one: str, many: str) -> Pattern:
    count = last - first + 1
    if last == extent - 1 and first > 0:
        block = next((size for size in _BLOCKS if first % size == 0 and count <= size), None)
        of_block = "" if block is None else f", a multiple of {block},"
        return Pattern(
            "tail",
            f"only {f'{one} {first}' if count == 1 else f'the {many} from {first} on'}{of_block} "
            f"{'is' if count == 1 else 'are'} wrong: the last {count} of {extent}, as if the last block or the "
            "remainder of a division were left out",
        )
    if count == 1:
        return Pattern("one_index", f"only {one} {first} is wrong")
    if first == 0:
        return Pattern("head", f"only the first {count} of {extent} {many} are wrong")
    return Pattern("stretch", f"only the {many} from {first} to {last} are wrong")


def _regular(hit: Sequence[int], extent: int) -> int | None:
    """Return ``n`` where ``hit`` is every n-th of ``extent`` indices, at least three."""
    if len(hit) < 3:
        return None
    step = hit[1] - hit[0]
    regular = step > 1 and hit[0] < step and hit[-1] + step >= extent
    same = all(after - before == step for before, after in pairwise(hit))
    return step if regular and same else None


def _ordinal(number: int) -> str:
    return {2: "second", 3: "third"}.get(number, f"{number}th")
