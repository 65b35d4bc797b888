"""As many candidates as are asked for, no two alike."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from benchmarks.candidates import cpp, cuda

__all__ = ["Made", "make_candidates"]


@dataclass(frozen=True)
class Made:
    """A candidate: ``source_with_name`` is its source, given a name for its extension."""

    problem: str
    label: str
    source_with_name: Callable[[str], str]


def make_candidates(device: str, count: int, seed: int) -> list[Made]:
    """``count`` candidates for a kind of device, from each of its problems in turn.

    Raises ``ValueError`` where there are not so many.
    """
    made = list(itertools.islice(_in_turn(device, seed), count))
    if len(made) < count:
        raise ValueError(f"there are {len(made)} candidates for {device}, not {count}")
    return made


def _in_turn(device: str, seed: int) -> Iterator[Made]:
    # Each problem has an order of its own, or a variant would come for all problems at once.
    rows = (
        [_of_cuda(problem, seed + number) for number, problem in enumerate(cuda.PROBLEMS)]
        if device == "cuda"
        else [_of_cpp(problem, seed + number) for number, problem in enumerate(cpp.PROBLEMS)]
    )
    return itertools.chain.from_iterable(zip(*rows, strict=True))


def _of_cuda(problem: str, seed: int) -> Iterator[Made]:
    kernels = cuda.PROBLEMS[problem]
    for variant in cuda.variants(seed):

        def source_with_name(name: str, variant: cuda.Variant = variant) -> str:
            return cuda.cuda_source(kernels, variant, name)

        yield Made(problem, f"{problem} {variant}", source_with_name)


def _of_cpp(problem: str, seed: int) -> Iterator[Made]:
    kernels = cpp.PROBLEMS[problem]
    for variant in cpp.variants(seed):

        def source_with_name(name: str, variant: cpp.Variant = variant) -> str:
            return cpp.cpp_source(problem, kernels, variant, name)

        yield Made(problem, f"{problem} {variant}", source_with_name)
