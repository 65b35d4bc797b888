"""References that candidates bring in place of a problem's id."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Final, cast

from kerneljudge.cli.output import BadUsage
from kerneljudge.grading.sources import read_given
from kerneljudge.requests import Reference
from kerneljudge.terms.choices import GRADIENT_POLICIES, INPUT_DOMAINS

__all__ = ["checked_reference", "read_reference", "reference_in", "reference_key"]

_CHOICES: Final = {"gradient_policy": GRADIENT_POLICIES, "input_domain": (*INPUT_DOMAINS, None)}


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
    return checked_reference(cast(Reference, {name: each for name, each in value.items() if each is not None}))


def checked_reference(reference: Reference) -> Reference:
    """Return ``reference``, whose policies are valid. Its source is not read. Raises ``BadUsage``."""
    tolerance = reference.get("tolerance")
    try:
        limits = None if tolerance is None else (float(tolerance["atol"]), float(tolerance["rtol"]))
    except (KeyError, TypeError, ValueError) as error:
        raise BadUsage("the tolerance of a reference must give the numbers atol and rtol") from error
    if limits is not None and not (0 < limits[0] < 1 and 0 <= limits[1] < 1):
        raise BadUsage("the tolerance of a reference must lie between 0 and 1")
    for name, values in _CHOICES.items():
        if name in reference and reference[name] not in values:  # type: ignore[literal-required]
            raise BadUsage(f"{name} of a reference must be one of {', '.join(filter(None, values))}")
    if not isinstance(reference.get("row_independent", False), bool):
        raise BadUsage("row_independent of a reference must be true or false")
    return reference


def reference_key(reference: Reference, precision: str | None) -> str:
    """Return a name of the problem that ``reference`` makes at ``precision``; equal references have the same.

    The judge has another id for it, which only the evaluator can make.
    """
    content = json.dumps([reference, precision or "float32"], sort_keys=True)
    return f"reference-{hashlib.sha256(content.encode(errors='surrogatepass')).hexdigest()[:16]}"
