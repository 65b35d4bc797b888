"""Problems that come with a request: a reference alone, in KernelBench's form. Nothing is executed here."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from evaluator.errors import ProblemError
from evaluator.problems.problem import Problem, Tolerance
from evaluator.problems.published import Unusable, parse_published

__all__ = ["REQUESTED", "is_requested", "requested_problem"]

REQUESTED: Final = "reference_"
"""The beginning of the ids of such problems. No problem in a folder may have it."""

_DIGITS: Final = 16


def is_requested(problem_id: str) -> bool:
    """Whether a problem came with a request."""
    return problem_id.startswith(REQUESTED)


def requested_problem(
    source: str,
    *,
    dtype: str = "float32",
    tolerances: Mapping[str, Tolerance] | None = None,
    gradient_policy: str = "check",
    input_domain: str | None = None,
    row_independent: bool = False,
) -> Problem:
    """Return the problem of a reference. Its id is made from its content, so equal references are one problem.

    It has the size ``full`` alone, as written. Where no ``input_domain`` is given, it is ``real`` if ``get_inputs``
    only draws random numbers, and ``as_written`` otherwise. Raises ``ProblemError`` for a source that is not in
    KernelBench's form.
    """
    try:
        published = parse_published(source.replace("\r\n", "\n"), "A reference from a request")
    except Unusable as error:
        raise ProblemError(str(error)) from error
    problem = Problem(
        id=REQUESTED,
        title=published.title,
        description=published.description,
        source=published.source,
        sizes={"full": {}},
        dtype=dtype,
        tolerances=tolerances or {},
        gradient_policy=gradient_policy,
        input_domain=input_domain or ("real" if published.drawn else "as_written"),
        row_independent=row_independent,
    )
    digest = hashlib.sha256(problem.version.encode()).hexdigest()[:_DIGITS]
    return replace(problem, id=f"{REQUESTED}{digest}")
