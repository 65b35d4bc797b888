"""The comparison of two sets of candidates for the same problems: differences of fast_p and pass@k, in pairs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from kerneljudge.summaries.shares import difference_interval
from kerneljudge.summaries.summary import PASS_AT, THRESHOLDS, GradedCandidate, chance, fastest_of, reached
from kerneljudge.terms.outcomes import Interval

__all__ = ["Comparison", "Difference", "FastPDifference", "PassAtKDifference", "compare"]

T = TypeVar("T")


@dataclass(frozen=True)
class Difference:
    """Two means over the same problems. ``interval`` is of ``difference``, the first mean minus the second."""

    first: float
    second: float
    difference: float
    interval: Interval


@dataclass(frozen=True)
class FastPDifference(Difference):
    """The difference of fast_p at ``p``, and the numbers of problems that both sets reach, one of them, or none."""

    p: float
    both: int
    first_only: int
    second_only: int
    neither: int


@dataclass(frozen=True)
class PassAtKDifference(Difference):
    """The difference of pass@k at ``p``."""

    k: int
    p: float


@dataclass(frozen=True)
class Comparison:
    """Everything about two sets on the ``problems`` for which both have a graded candidate.

    ``waiting``: problems that both have candidates for, none of them graded in one set. They are in no difference.
    ``candidates`` and ``ungraded`` are of both kinds, the first set before the second. ``unequal``: problems
    with more graded candidates in one set than in the other. The differences are empty without a problem.
    """

    problems: tuple[str, ...]
    waiting: tuple[str, ...]
    first_only: tuple[str, ...]
    second_only: tuple[str, ...]
    candidates: tuple[int, int]
    ungraded: tuple[int, int]
    unequal: int
    fast_p: tuple[FastPDifference, ...]
    pass_at_k: tuple[PassAtKDifference, ...]


def compare(first: Iterable[GradedCandidate], second: Iterable[GradedCandidate]) -> Comparison:
    """Compare two sets of candidates on the problems for which both have a graded one.

    A problem without a graded candidate is no failure: its candidates wait, were cancelled, or met a fault of ours.
    """
    ours, theirs = _by_problem(first), _by_problem(second)
    common = sorted(ours.keys() & theirs.keys())
    sides = [[groups[problem] for problem in common] for groups in (ours, theirs)]
    graded = [[[each for each in group if each.verdict is not None] for group in side] for side in sides]
    counts = [[len(group) for group in side] for side in graded]
    candidates, other = (sum(side) for side in counts)
    ungraded, other_ungraded = (sum(map(len, side)) - sum(count) for side, count in zip(sides, counts, strict=True))
    pairs = [place for place in range(len(common)) if all(count[place] for count in counts)]
    paired = [[side[place] for place in pairs] for side in graded]
    return Comparison(
        problems=tuple(common[place] for place in pairs),
        waiting=tuple(name for place, name in enumerate(common) if place not in pairs),
        first_only=tuple(sorted(ours.keys() - theirs.keys())),
        second_only=tuple(sorted(theirs.keys() - ours.keys())),
        candidates=(candidates, other),
        ungraded=(ungraded, other_ungraded),
        unequal=sum(one != another for one, another in zip(*counts, strict=True)),
        fast_p=_fast_p(*paired) if pairs else (),
        pass_at_k=_pass_at_k(*paired) if pairs else (),
    )


def _by_problem(candidates: Iterable[GradedCandidate]) -> dict[str, list[GradedCandidate]]:
    found: dict[str, list[GradedCandidate]] = {}
    for graded in candidates:
        found.setdefault(graded.problem, []).append(graded)
    return found


def _fast_p(
    ours: Sequence[Sequence[GradedCandidate]], theirs: Sequence[Sequence[GradedCandidate]]
) -> tuple[FastPDifference, ...]:
    best, others = [fastest_of(group) for group in ours], [fastest_of(group) for group in theirs]
    found = []
    for p in THRESHOLDS:
        pairs = [(reached(one, p), reached(other, p)) for one, other in zip(best, others, strict=True)]
        both, first, second = (pairs.count(each) for each in ((1.0, 1.0), (1.0, 0.0), (0.0, 1.0)))
        outcomes = {"both": both, "first_only": first, "second_only": second}
        found.append(_difference(FastPDifference, pairs, p=p, **outcomes, neither=len(pairs) - both - first - second))
    return tuple(found)


def _pass_at_k(
    ours: Sequence[Sequence[GradedCandidate]], theirs: Sequence[Sequence[GradedCandidate]]
) -> tuple[PassAtKDifference, ...]:
    # As in a summary: only where every problem that has candidates has enough of them, on both sides.
    fewest = min((len(group) for group in (*ours, *theirs) if group), default=0)
    found = []
    for k in (each for each in PASS_AT if each <= fewest):
        for p in THRESHOLDS:
            pairs = [(chance(one, k, p), chance(other, k, p)) for one, other in zip(ours, theirs, strict=True)]
            found.append(_difference(PassAtKDifference, pairs, k=k, p=p))
    return tuple(found)


def _difference(kind: Callable[..., T], pairs: Sequence[tuple[float, float]], **fields: float) -> T:
    """Return the ``kind`` of difference of the means of ``pairs``, of which there is one at least."""
    ours, theirs = [one for one, _ in pairs], [other for _, other in pairs]
    interval = difference_interval(ours, theirs)
    first, second = math.fsum(ours) / len(pairs), math.fsum(theirs) / len(pairs)
    return kind(first=first, second=second, difference=first - second, interval=interval, **fields)
