"""References that candidates bring in place of a problem's id."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, Final, cast

from evaluator.errors import ProblemError
from evaluator.problems.problem import GRADIENT_POLICIES, INPUT_DOMAINS, Problem, Tolerance
from evaluator.problems.requested import requested_problem
from kerneljudge.cli.output import BadUsage
from kerneljudge.grading.sources import read_given
from kerneljudge.requests import Reference

__all__ = ["problem_of", "read_reference", "reference_in"]

_CHOICES: Final = {"gradient_policy": GRADIENT_POLICIES, "input_domain": (*INPUT_DOMAINS, None)}
_KEPT: Final = 1024


def read_reference(file: str) -> Reference:
    """Return the reference in ``file``, with the usual policies. Raises ``UnusableFile``."""
    return {"source": read_given(file, is_response=False).text}


def reference_in(value: object) -> Reference:
    """Return the reference in a field of a line: its source alone, or an object as the API takes it.

    Raises ``BadUsage``.
    """
    if isinstance(value, str):
        return {"source": value}
    if not isinstance(value, Mapping) or not isinstance(value.get("source"), str):
        raise BadUsage("a reference is its source, or an object with source")
    unknown = sorted(set(value) - set(Reference.__annotations__))
    if unknown:
        raise BadUsage(
            f"a reference has no field {unknown[0]!r}; it has {', '.join(sorted(Reference.__annotations__))}"
        )
    return cast(Reference, {name: each for name, each in value.items() if each is not None})


def problem_of(reference: Reference, precision: str | None) -> Problem:
    """Return the problem of a reference at ``precision``, ``float32`` by default. Raises ``BadUsage``."""
    tolerance = reference.get("tolerance")
    try:
        limits = None if tolerance is None else Tolerance(float(tolerance["atol"]), float(tolerance["rtol"]))
    except (KeyError, TypeError, ValueError) as error:
        raise BadUsage("the tolerance of a reference must give the numbers atol and rtol") from error
    if limits is not None and not (0 < limits.atol < 1 and 0 <= limits.rtol < 1):
        raise BadUsage("the tolerance of a reference must lie between 0 and 1")
    policies: dict[str, Any] = {name: reference[name] for name in _CHOICES if name in reference}  # type: ignore[literal-required]
    for name, value in policies.items():
        if value not in _CHOICES[name]:
            raise BadUsage(f"{name} of a reference must be one of {', '.join(filter(None, _CHOICES[name]))}")
    row_independent = reference.get("row_independent", False)
    if not isinstance(row_independent, bool):
        raise BadUsage("row_independent of a reference must be true or false")
    try:
        return _problem(reference["source"], precision or "float32", limits, row_independent, tuple(policies.items()))
    except ProblemError as error:
        raise BadUsage(f"the reference cannot be judged: {error}") from error


@functools.lru_cache(_KEPT)
def _problem(
    source: str, dtype: str, tolerance: Tolerance | None, row_independent: bool, policies: tuple[tuple[str, Any], ...]
) -> Problem:
    # Many lines share one reference, and each input is read twice.
    tolerances = {} if tolerance is None else {dtype: tolerance}
    return requested_problem(
        source, dtype=dtype, tolerances=tolerances, row_independent=row_independent, **dict(policies)
    )
