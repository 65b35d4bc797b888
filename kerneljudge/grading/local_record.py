"""Records that no service made, in the form of the API's."""

from __future__ import annotations

from typing import Any, cast

from kerneljudge.records import SubmissionRecord
from kerneljudge.terms.outcomes import Status

__all__ = ["blank_record", "failed_record"]


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


def failed_record(problem: str, message: str, **known: Any) -> SubmissionRecord:
    """Return the record of a candidate that could not be graded, through no fault of its own."""
    return blank_record(problem, status=str(Status.FAILED), message=message, **known)
