"""The problems of this machine, and those that a reference makes."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any, Final, cast

from evaluator.errors import ProblemError
from evaluator.problems.loading import load_problems
from evaluator.problems.problem import Problem, Tolerance
from evaluator.problems.requested import requested_problem
from kerneljudge.cli.options import one_of_problem_and_reference
from kerneljudge.cli.output import BadUsage
from kerneljudge.grading.references import checked_reference, read_reference
from kerneljudge.records import ProblemRecord
from kerneljudge.requests import Reference
from kerneljudge_server.folders import extra_problems_folder, problems_folder

__all__ = ["chosen_problem", "known_problem", "known_problems", "problem_of", "problem_record"]

_POLICIES: Final = ("gradient_policy", "input_domain", "row_independent")
_KEPT: Final = 1024


def known_problems(given: Path | None) -> dict[str, Problem]:
    """Return the problems in the folder ``given``; without one, those of ``problems_folder`` and the imported ones.

    Raises ``ProblemError``.
    """
    return load_problems(problems_folder(given), extra_problems_folder() if given is None else None)


def known_problem(folder: Path | None, problem_id: str) -> Problem:
    """Return the problem ``problem_id`` of a folder. Raises ``BadUsage`` if it is not there."""
    problems = known_problems(folder)
    if problem_id not in problems:
        raise BadUsage(f"no problem {problem_id!r} in {problems_folder(folder)}; there are {', '.join(problems)}")
    return problems[problem_id]


def chosen_problem(folder: Path | None, problem: str | None, reference: str | None, precision: str | None) -> Problem:
    """Return the problem of a folder, or the one that a file with a reference makes.

    Raises ``BadUsage``, ``UnusableFile``.
    """
    one_of_problem_and_reference(problem, reference)
    if reference is not None:
        return problem_of(read_reference(reference), precision)
    assert problem is not None
    return known_problem(folder, problem)


def problem_record(problem: Problem) -> ProblemRecord:
    """Return ``problem`` as a record of the API."""
    own = {"visibility": "public", "owner": None, "reference": problem.source, "versions": [problem.version]}
    return cast("ProblemRecord", {**problem.to_record(), **own, "withdrawn_at": None})


def problem_of(reference: Reference, precision: str | None) -> Problem:
    """Return the problem of a reference at ``precision``, ``float32`` by default. Raises ``BadUsage``."""
    given = checked_reference(reference)
    tolerance = given.get("tolerance")
    limits = None if tolerance is None else Tolerance(float(tolerance["atol"]), float(tolerance["rtol"]))
    policies = {name: given[name] for name in _POLICIES if name in given}
    try:
        return _problem(given["source"], precision or "float32", limits, tuple(policies.items()))
    except ProblemError as error:
        raise BadUsage(f"the reference cannot be judged: {error}") from error


@functools.lru_cache(_KEPT)
def _problem(source: str, dtype: str, tolerance: Tolerance | None, policies: tuple[tuple[str, Any], ...]) -> Problem:
    # Many lines share one reference.
    tolerances = {} if tolerance is None else {dtype: tolerance}
    return requested_problem(source, dtype=dtype, tolerances=tolerances, **dict(policies))
