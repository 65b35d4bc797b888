"""The summary of many graded candidates: rates, fast_p, pass@k and mean speedups.

Pure functions over verdicts and speedups. ``docs/metrics.md`` has the definitions, and their differences from
KernelBench's.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from kerneljudge.summaries.shares import share_interval
from kerneljudge.terms.outcomes import Interval, SpeedupStatus, Verdict

__all__ = [
    "PASS_AT",
    "THRESHOLDS",
    "Best",
    "Figures",
    "GradedCandidate",
    "PassAtK",
    "ProblemFacts",
    "Summary",
    "chance",
    "fast_p",
    "fastest_of",
    "geometric_mean",
    "pass_at_k",
    "reached",
    "summarise",
]

THRESHOLDS: Final = (0.0, 0.5, 0.8, 1.0, 1.5, 2.0)
"""The thresholds p of fast_p, as KernelBench reports it."""

PASS_AT: Final = (1, 2, 5, 10, 20, 50, 100)
"""The k of pass@k, as far as every problem has so many candidates."""

_NOT_COMPILED: Final = frozenset({Verdict.INVALID_SOURCE, Verdict.LOAD_ERROR, Verdict.COMPILE_ERROR})


@dataclass(frozen=True)
class GradedCandidate:
    """One candidate for one problem. ``verdict`` of ``None``: it was not graded (yet), through no fault of its own.

    ``name`` is its owner's name for it. ``certain_speedup``: the lower end of the speedup's interval; where that is not
    known, the speedup itself takes its place.
    """

    problem: str
    verdict: Verdict | None
    speedup: float | None = None
    name: str = ""
    certain_speedup: float | None = None
    speedup_status: SpeedupStatus | None = None

    @property
    def correct(self) -> bool:
        return self.verdict is Verdict.PASSED

    @property
    def compiled(self) -> bool:
        """Whether its module could be built and imported, as KernelBench counts it."""
        return self.verdict is not None and self.verdict not in _NOT_COMPILED

    def faster_than(self, p: float) -> bool:
        """Whether it is right with a speedup above ``p``, the whole interval of it.

        A right candidate is above 0, even if nothing was timed.
        """
        if not self.correct:
            return False
        certain = self.certain
        # A speedup that is NaN is above nothing.
        return p <= 0 or (certain is not None and certain > p)

    @property
    def certain(self) -> float | None:
        """The figure of ``faster_than`` and of the best candidate of a problem."""
        return self.speedup if self.certain_speedup is None else self.certain_speedup


@dataclass(frozen=True)
class ProblemFacts:
    """The fields by which problems are grouped. ``level`` is KernelBench's."""

    level: int | None = None
    tags: tuple[str, ...] = ()


@dataclass(frozen=True)
class PassAtK:
    """The chance that one of ``k`` candidates is right with a speedup above ``p``, averaged over the problems.

    ``interval`` is of ``value`` (see ``kerneljudge.summaries.shares``).
    """

    k: int
    p: float
    value: float
    interval: Interval


@dataclass(frozen=True)
class Best:
    """The best candidate of a problem: the fastest right one. ``name`` is empty where none is right.

    ``certain_speedup``: the lower end of its interval, which decides the order.
    """

    problem: str
    candidates: int
    correct: int
    name: str
    speedup: float | None
    certain_speedup: float | None


@dataclass(frozen=True)
class Figures:
    """The figures of a set of candidates. Shares of problems are of *all* problems, those without a candidate included.

    ``candidates`` were graded, ``ungraded`` were not (yet). ``unsettled``, ``not_vetted`` and ``weights_fixed`` are
    right and have no figure for that reason, and ``untimed`` because nothing was timed. They are in ``correct``, and in
    no mean and no ``fast_p`` above 0. ``fast_p`` is by threshold, and so is ``fast_p_interval``. The latter is
    empty without a problem.
    """

    problems: int
    candidates: int
    ungraded: int
    compiled: int
    correct: int
    unsettled: int
    not_vetted: int
    weights_fixed: int
    untimed: int
    solved: int
    fast_p: Mapping[float, float]
    fast_p_interval: Mapping[float, Interval]
    geometric_mean: float | None
    best_geometric_mean: float | None

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON-ready data."""
        return {
            **vars(self),
            "fast_p": {f"{p:g}": share for p, share in self.fast_p.items()},
            "fast_p_interval": {f"{p:g}": asdict(interval) for p, interval in self.fast_p_interval.items()},
        }


@dataclass(frozen=True)
class Summary:
    """Everything about a set of candidates. ``missing``: named problems without a candidate."""

    overall: Figures
    verdicts: Mapping[Verdict, int]
    pass_at_k: tuple[PassAtK, ...]
    by_level: Mapping[int, Figures]
    by_tag: Mapping[str, Figures]
    best: tuple[Best, ...]
    missing: tuple[str, ...] = field(default=())

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON-ready data."""
        return {
            "overall": self.overall.to_dict(),
            "verdicts": {str(verdict): count for verdict, count in self.verdicts.items()},
            "pass_at_k": [asdict(each) for each in self.pass_at_k],
            "by_level": {str(level): figures.to_dict() for level, figures in self.by_level.items()},
            "by_tag": {tag: figures.to_dict() for tag, figures in self.by_tag.items()},
            "best": [vars(each) for each in self.best],
            "missing": list(self.missing),
        }


def fast_p(best: Iterable[GradedCandidate], problems: int, p: float) -> float:
    """The share of ``problems`` whose candidate in ``best`` (one for each problem at most) is faster than ``p``."""
    return sum(graded.faster_than(p) for graded in best) / problems if problems else 0.0


def geometric_mean(speedups: Iterable[float]) -> float | None:
    """Return the geometric mean of ``speedups``, by logarithms so that many do not overflow; ``None`` of none.

    Invalid speedups (zero, negative, not finite) are left out.
    """
    logarithms = [math.log(speedup) for speedup in speedups if 0 < speedup < math.inf]
    return math.exp(math.fsum(logarithms) / len(logarithms)) if logarithms else None


def pass_at_k(candidates: int, correct: int, k: int) -> float:
    """The chance that at least one of ``k`` candidates drawn from these is correct (Chen et al. 2021, without bias).

    Raises ``ValueError`` where there are fewer than ``k``: then there is no estimate without bias.
    """
    if not 1 <= k <= candidates:
        raise ValueError(f"pass@{k} needs at least {k} candidates, and there are {candidates}")
    if candidates - correct < k:
        return 1.0
    return 1.0 - math.comb(candidates - correct, k) / math.comb(candidates, k)


def summarise(
    candidates: Iterable[GradedCandidate],
    facts: Mapping[str, ProblemFacts] | None = None,
    problems: Collection[str] | None = None,
) -> Summary:
    """Summarise ``candidates``, over the problems that they are for, or over ``problems`` alone.

    Of named problems, those without a candidate count as failures, and candidates for others do not count. ``facts``
    are by problem.
    """
    by_problem: dict[str, list[GradedCandidate]] = {problem: [] for problem in sorted(set(problems or ()))}
    for graded in candidates:
        if problems is None or graded.problem in by_problem:
            by_problem.setdefault(graded.problem, []).append(graded)
    levels: defaultdict[int, list[str]] = defaultdict(list)
    tags: defaultdict[str, list[str]] = defaultdict(list)
    for problem in by_problem:
        known = (facts or {}).get(problem, ProblemFacts())
        if known.level is not None:
            levels[known.level].append(problem)
        for tag in set(known.tags):
            tags[tag].append(problem)
    everything = list(by_problem.values())
    verdicts = Counter(each.verdict for group in everything for each in group if each.verdict is not None)
    return Summary(
        overall=_figures(everything),
        verdicts=dict(sorted(verdicts.items())),
        pass_at_k=_pass_at_k(everything),
        by_level={level: _figures([by_problem[name] for name in names]) for level, names in sorted(levels.items())},
        by_tag={tag: _figures([by_problem[name] for name in names]) for tag, names in sorted(tags.items())},
        best=tuple(_best_of(problem, by_problem[problem]) for problem in sorted(by_problem)),
        missing=tuple(sorted(problem for problem, group in by_problem.items() if not group)),
    )


def _figures(groups: Sequence[Sequence[GradedCandidate]]) -> Figures:
    """Return the figures of candidates grouped by their problems."""
    every = [graded for group in groups for graded in group]
    fastest = [fastest_of(group) for group in groups]
    best = [found for found in fastest if found is not None]
    intervals = {p: share_interval([reached(found, p) for found in fastest]) for p in THRESHOLDS}

    def without_speedup(status: SpeedupStatus) -> int:
        return sum(graded.correct and graded.speedup_status is status for graded in every)

    return Figures(
        problems=len(groups),
        candidates=sum(graded.verdict is not None for graded in every),
        ungraded=sum(graded.verdict is None for graded in every),
        compiled=sum(graded.compiled for graded in every),
        correct=sum(graded.correct for graded in every),
        unsettled=without_speedup(SpeedupStatus.UNSETTLED),
        not_vetted=without_speedup(SpeedupStatus.NOT_VETTED),
        weights_fixed=without_speedup(SpeedupStatus.WEIGHTS_FIXED),
        untimed=sum(graded.correct and graded.speedup is None and graded.speedup_status is None for graded in every),
        solved=len(best),
        fast_p={p: fast_p(best, len(groups), p) for p in THRESHOLDS},
        fast_p_interval={p: interval for p, interval in intervals.items() if interval is not None},
        geometric_mean=_mean_speedup(every),
        best_geometric_mean=_mean_speedup(best),
    )


def _pass_at_k(groups: Sequence[Sequence[GradedCandidate]]) -> tuple[PassAtK, ...]:
    graded = [[each for each in group if each.verdict is not None] for group in groups]
    # As Chen et al.: only where every problem that has candidates has enough of them.
    fewest = min((len(group) for group in graded if group), default=0)
    found = []
    for k in PASS_AT:
        if k > fewest:
            break
        for p in THRESHOLDS:
            chances = [chance(group, k, p) for group in graded]
            interval = share_interval(chances)
            assert interval is not None
            found.append(PassAtK(k, p, math.fsum(chances) / len(groups), interval))
    return tuple(found)


def reached(best: GradedCandidate | None, p: float) -> float:
    """Return 1 where the best candidate of a problem is faster than ``p``, else 0."""
    return float(best is not None and best.faster_than(p))


def chance(group: Sequence[GradedCandidate], k: int, p: float) -> float:
    """Return pass@k of one problem's graded candidates; 0 of none. Raises ``ValueError`` where they are too few."""
    return pass_at_k(len(group), sum(one.faster_than(p) for one in group), k) if group else 0.0


def _best_of(problem: str, group: Sequence[GradedCandidate]) -> Best:
    fastest = fastest_of(group)
    return Best(
        problem=problem,
        candidates=sum(graded.verdict is not None for graded in group),
        correct=sum(graded.correct for graded in group),
        name="" if fastest is None else fastest.name,
        speedup=None if fastest is None else fastest.speedup,
        certain_speedup=None if fastest is None else fastest.certain,
    )


def fastest_of(group: Iterable[GradedCandidate]) -> GradedCandidate | None:
    """The first of the right candidates with the highest certain speedup; untimed ones come last."""
    return max((graded for graded in group if graded.correct), key=_rank, default=None)


def _rank(graded: GradedCandidate) -> float:
    certain = graded.certain
    return certain if certain is not None and certain > 0 else 0.0


def _mean_speedup(candidates: Iterable[GradedCandidate]) -> float | None:
    return geometric_mean(graded.speedup for graded in candidates if graded.correct and graded.speedup is not None)
