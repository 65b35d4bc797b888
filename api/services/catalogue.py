"""The problems that a viewer sees: those of folders and those of clients, with the vetting results so far."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from sqlalchemy.orm import Session

from api.http.errors import NotFound
from evaluator.problems.problem import Problem
from evaluator.problems.vetting import Vetting
from storage.access.visibility import Viewer, Visibility
from storage.created_problems import created_mark, created_problems, sees_problem
from storage.models import CreatedProblem
from storage.problems import stored_problem
from storage.vettings import found_vettings, vettings_mark, vettings_of

__all__ = ["Catalogue", "Catalogues"]


@dataclass(frozen=True)
class Catalogue:
    """Problems by id, the refusals of those that are not ranked, and the owners of those that clients created."""

    problems: Mapping[str, Problem] = field(default_factory=dict)
    refusals: Mapping[str, str] = field(default_factory=dict)
    created: Mapping[str, CreatedProblem] = field(default_factory=dict)

    def problem(self, problem_id: str) -> Problem:
        """Return a problem in its current version. Raises ``NotFound``, which names the known problems."""
        problem = self.problems.get(problem_id)
        if problem is None:
            raise NotFound(f"no problem {problem_id!r}; there are {', '.join(self.problems)}")
        return problem

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
    """The catalogue of everything, which is read again only after a change."""

    def __init__(self, folders: Mapping[str, Problem]) -> None:
        self._folders = folders
        self._kept: tuple[Any, Catalogue] = None, Catalogue()

    def read(self, session: Session) -> Catalogue:
        """Return all problems as they are now."""
        mark = (vettings_mark(session), created_mark(session))
        if mark != self._kept[0]:
            found = found_vettings(session)
            problems = {name: _vetted(each, found) for name, each in self._folders.items()}
            created = {}
            for name, (known, problem, came) in created_problems(session).items():
                session.expunge(known)
                created[name] = known
                own = replace(problem, vettings=tuple(Vetting.from_dict(each) for each in came))
                problems[name] = _vetted(own, found)
            # Computing this takes a hash of the whole problem, for which pages of all problems would wait.
            refusals = {each.id: each.refusal for each in problems.values() if each.refusal is not None}
            self._kept = mark, Catalogue(problems, refusals, created)
        return self._kept[1]


def _vetted(problem: Problem, found: Mapping[tuple[str, str], Any]) -> Problem:
    return replace(problem, vettings=(*problem.vettings, *found.get((problem.id, problem.version), ())))
