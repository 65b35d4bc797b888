"""The conditions of two batches, which must agree before their figures can be compared."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

from sqlalchemy import select
from sqlalchemy.orm import Session

from kerneljudge.summaries.comparison import Comparison, compare
from storage.access.visibility import Viewer
from storage.batches.batches import Batches
from storage.models import BatchItem, StoredEvaluation, Submission

__all__ = ["NotComparable", "compare_batches", "device_names_of"]

_CONDITIONS: Final[Mapping[str, str]] = {
    "problem_version": "version of the problem",
    "device": "device",
    "size": "size",
    "precision": "precision",
    "baseline": "baseline",
    "tier": "tier",
    "require_gradients": "require_gradients",
    "limits": "limits",
    "rules": "rules",
}
"""The columns of a submission that decide what its verdict and figures mean, and their names."""

_SAID: Final = 3


class NotComparable(ValueError):
    """The batches were graded under different conditions at a problem that both have."""


def compare_batches(session: Session, batch_id: str, other_id: str, viewer: Viewer) -> Comparison:
    """Compare what ``viewer`` sees of two batches, on the problems that both have. Raises ``NotComparable``."""
    ours, theirs = _conditions_of(session, batch_id), _conditions_of(session, other_id)
    apart = [problem for problem in sorted(ours.keys() & theirs.keys()) if len(ours[problem] | theirs[problem]) > 1]
    if apart:
        said = "; ".join(_difference(problem, ours[problem] | theirs[problem]) for problem in apart[:_SAID])
        more = f"; and {len(apart) - _SAID} more problems" if len(apart) > _SAID else ""
        raise NotComparable(f"the lines were not graded under the same conditions: {said}{more}")
    batches = Batches(session)
    return compare(batches.graded(batch_id, viewer), batches.graded(other_id, viewer))


def device_names_of(session: Session, batch_id: str) -> Sequence[str]:
    """Return the names of the devices that have evaluated the batch's lines, in alphabetical order."""
    query = (
        select(StoredEvaluation.device_name)
        .join(BatchItem, BatchItem.submission_id == StoredEvaluation.submission_id)
        .where(BatchItem.batch_id == batch_id, StoredEvaluation.device_name.is_not(None))
        .distinct()
    )
    return sorted(name for name in session.scalars(query) if name is not None)


def _conditions_of(session: Session, batch_id: str) -> dict[str, set[tuple[str, ...]]]:
    """Return the conditions of the batch's lines by problem; mostly one for each."""
    columns = [getattr(Submission, name) for name in _CONDITIONS]
    query = (
        select(Submission.problem, *columns)
        .join(BatchItem, BatchItem.submission_id == Submission.id)
        .where(BatchItem.batch_id == batch_id)
        .distinct()
    )
    found: defaultdict[str, set[tuple[str, ...]]] = defaultdict(set)
    for problem, *values in session.execute(query):
        found[problem].add(tuple(_said(value) for value in values))
    return found


def _said(value: str | bool | None) -> str:
    """Return a condition in words. ``None`` and the empty text stand for the default."""
    return "default" if value in (None, "") else str(value).lower() if isinstance(value, bool) else str(value)


def _difference(problem: str, conditions: set[tuple[str, ...]]) -> str:
    """Return the conditions that differ at ``problem``, in words."""
    values = zip(_CONDITIONS.values(), zip(*conditions, strict=True), strict=True)
    apart = [f"{name} {' and '.join(sorted(set(found)))}" for name, found in values if len(set(found)) > 1]
    return f"{problem} has {', '.join(apart)}"
