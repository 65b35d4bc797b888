"""The record of a local evaluation, in the form of the API's."""

from __future__ import annotations

from typing import Any, cast

from evaluator.evaluation import Evaluation
from kerneljudge.records import ShapeFiguresRecord, SubmissionRecord

__all__ = ["blank_record", "evaluation_fields"]


def blank_record(problem: str, /, **known: Any) -> SubmissionRecord:
    """Return a record in the API's form that is empty but for ``known``, since no service took part.

    Fields that only a service can fill are ``None`` or empty: id, version of the problem, times and links.
    """
    record = {
        **dict.fromkeys(SubmissionRecord.__annotations__),
        "problem": problem,
        "baseline": "eager",
        "tier": "full",
        "rules": {},
        "visibility": "public",
        "source_shown": True,
        "shapes": {},
        "roofline": {},
        "errors": {"max_abs": None, "max_rel": None, "reference_max_rel": None},
        "message": "",
        "hints": [],
        "notes": [],
        "flags": [],
        "details": {},
        "attempts": 1,
        "timeline": dict.fromkeys(("submitted", "built", "started", "finished")),
        "stage_s": {},
        "environment": {},
        "links": {},
        **known,
    }
    return cast(SubmissionRecord, record)


def evaluation_fields(evaluation: Evaluation) -> dict[str, Any]:
    """Return the fields of a record that an evaluation provides."""
    found = evaluation.to_dict()
    for not_in_a_record in ("samples", "log"):
        del found[not_in_a_record]
    names = ShapeFiguresRecord.__annotations__
    found["shapes"] = {shape: {name: each[name] for name in names} for shape, each in found["shapes"].items()}
    return {**found, "hints": list(evaluation.hints), "notes": list(evaluation.notes)}
