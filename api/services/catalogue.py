"""The problems that a viewer sees: those of folders and those of clients, with the vetting results so far."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from threading import Lock
from typing import Any, Final

from sqlalchemy.orm import Session

from api.http.errors import NotFound
from evaluator.problems.problem import Problem
from evaluator.problems.vetting import Vetting
from storage.access.visibility import Viewer, Visibility
from storage.created_problems import created_mark, created_problems, created_revisions, sees_problem
from storage.models import CreatedProblem
from storage.problems import stored_problem
from storage.vettings import found_vettings, vettings_mark, vettings_of

__all__ = ["Catalogue", "Catalogues"]

_NAMED: Final = 40
"""The most problems that an error names: all of those that come with the service, and not each of its clients'."""


@dataclass(frozen=True)
class Catalogue:
    """Problems by id, the refusals of those that are not ranked, and the owners of those that clients created."""

    problems: Mapping[str, Problem] = field(default_factory=dict)
    refusals: Mapping[str, str] = field(default_factory=dict)
    created: Mapping[str, CreatedProblem] = field(default_factory=dict)

    def problem(self, problem_id: str) -> Problem:
        """Return a problem in its current version. Raises ``NotFound``, which names some of the known ones."""
        problem = self.problems.get(problem_id)
        if problem is None:
            named = ", ".join(islice(self.problems, _NAMED))
            more = f" and {len(self.problems) - _NAMED} more" if len(self.problems) > _NAMED else ""
            raise NotFound(f"no problem {problem_id!r}; there are {named}{more}")
        return problem

    def with_withdrawn(self, session: Session, problem_id: str, viewer: Viewer) -> Catalogue:
        """Return the catalogue together with a problem that was withdrawn, if it is this one and the viewer's own."""
        if problem_id in self.problems:
            return self
        known = session.get(CreatedProblem, problem_id)
        if known is None or known.withdrawn_at is None or not viewer.owns(known):
            return self
        problem = stored_problem(session, known.id, known.version)
        assert problem is not None
        vetted = replace(problem, vettings=tuple(vettings_of(session, known.id, known.version)))
        return replace(self, problems={**self.problems, known.id: vetted}, created={**self.created, known.id: known})

    def problem_in(self, session: Session, problem_id: str, version: str | None) -> Problem:
        """Return a problem in an earlier ``version``, or in its current one. Raises ``NotFound``."""
        problem = self.problem(problem_id)
        if version is None or version == problem.version:
            return problem
        earlier = stored_problem(session, problem_id, version)
        if earlier is None:
            raise NotFound(f"problem {problem_id} has no version {version!r}; the current one is {problem.version}")
        return replace(earlier, vettings=tuple(vettings_of(session, problem_id, version)))

    def is_private(self, problem_id: str) -> bool:
        """Whether only its owner and administrators see this problem."""
        known = self.created.get(problem_id)
        return known is not None and known.visibility == Visibility.PRIVATE

    def seen_by(self, viewer: Viewer) -> Catalogue:
        """Return the part that ``viewer`` sees."""
        hidden = {name for name, known in self.created.items() if not sees_problem(viewer, known)}
        if not hidden:
            return self
        return Catalogue(
            {name: each for name, each in self.problems.items() if name not in hidden},
            {name: each for name, each in self.refusals.items() if name not in hidden},
            {name: each for name, each in self.created.items() if name not in hidden},
        )


class Catalogues:
    """The catalogue of everything. After a change, the problems that have changed are read again."""

    def __init__(self, folders: Mapping[str, Problem]) -> None:
        self._folders = folders
        self._lock = Lock()
        self._kept: tuple[Any, Catalogue] = None, Catalogue()
        self._created: dict[str, tuple[CreatedProblem, Problem]] = {}
        self._vetted: dict[str, tuple[Problem, Problem]] = {}
        """Each problem as it was read, and with its vettings."""

    def read(self, session: Session) -> Catalogue:
        """Return all problems as they are now."""
        mark, known = self._kept
        if mark == _mark(session):
            return known
        with self._lock:
            # Other threads have seen the same change. One of them may have read it meanwhile.
            mark, known = self._kept
            now = _mark(session)
            if mark != now:
                known = self._read(session)
                self._kept = now, known
            return known

    def _read(self, session: Session) -> Catalogue:
        found = found_vettings(session)
        revisions = created_revisions(session)
        changed = [
            name
            for name, revision in revisions.items()
            if name not in self._created or self._created[name][0].revision != revision
        ]
        for name, (known, problem, came) in created_problems(session, changed).items():
            session.expunge(known)
            self._created[name] = known, replace(problem, vettings=tuple(Vetting.from_dict(each) for each in came))
        # One that was withdrawn a moment ago is in no answer.
        self._created = {name: self._created[name] for name in revisions if name in self._created}
        created = {name: known for name, (known, _) in self._created.items()}
        own = {name: problem for name, (_, problem) in self._created.items()}
        self._vetted = {name: (each, self._with(found, each)) for name, each in {**self._folders, **own}.items()}
        problems = {name: each for name, (_, each) in self._vetted.items()}
        # Computing this takes a hash of the whole problem, for which pages of all problems would wait.
        refusals = {each.id: each.refusal for each in problems.values() if each.refusal is not None}
        return Catalogue(problems, refusals, created)

    def _with(self, found: Mapping[tuple[str, str], Sequence[Vetting]], problem: Problem) -> Problem:
        """Return the problem with its vettings: the very same as before where nothing changed, hash included."""
        vettings = (*problem.vettings, *found.get((problem.id, problem.version), ()))
        before, vetted = self._vetted.get(problem.id, (None, problem))
        return vetted if before is problem and vetted.vettings == vettings else replace(problem, vettings=vettings)


def _mark(session: Session) -> tuple[Any, Any]:
    return vettings_mark(session), created_mark(session)
