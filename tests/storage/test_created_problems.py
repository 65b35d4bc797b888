"""Problems of clients in the database, on both kinds of it."""

from __future__ import annotations

from dataclasses import replace
from threading import Barrier, Thread, current_thread

import pytest
from alembic import command
from sqlalchemy import Engine, event, select
from sqlalchemy.orm import Session, sessionmaker

from evaluator.problems.created import CREATED, parse_created
from evaluator.problems.problem import Problem
from evaluator.problems.vetting import Vetting
from storage.access.visibility import Viewer, Visibility
from storage.created_problems import (
    TooManyProblems,
    create_problem,
    created_mark,
    created_problems,
    created_revisions,
    is_private,
    locked_problem,
    publish_problem,
    refuse_too_many,
    sees_problem,
    update_problem,
    withdraw_problem,
)
from storage.database import alembic_config
from storage.grading.withdrawal import reinstate, withdraw
from storage.ids import new_id
from storage.leaderboards.read import BoardKey, leaderboard
from storage.models import CreatedProblem, StoredRanking, Submission
from storage.problems import current_problems, problem_versions, stored_problem, sync_problems
from storage.vettings import record_vetting
from tests.storage.conftest import Finish


@pytest.fixture
def mine(sessions: sessionmaker[Session], problems: dict[str, Problem]) -> Problem:
    """A private problem of ada's."""
    problem = replace(problems["relu"], id=new_id(CREATED), vettings=())
    with sessions.begin() as session:
        create_problem(session, problem, "ada", Visibility.PRIVATE)
    return problem


def test_a_version_that_comes_back_is_the_current_one_again(sessions: sessionmaker[Session], mine: Problem) -> None:
    other = replace(mine, source=f"{mine.source}# changed\n")
    marks = set()
    for problem in (other, replace(mine, title="Another")):
        with sessions.begin() as session:
            known = locked_problem(session, mine.id)
            assert known is not None
            update_problem(session, known, problem, "ada")
        with sessions() as session:
            marks.add(created_mark(session))
            (found,) = created_problems(session, created_revisions(session)).values()
            assert found[1] == problem
            assert current_problems(session)[mine.id] == problem
            assert problem_versions(session, mine.id)[0] == problem.version
    assert len(marks) == 2
    with sessions() as session:
        assert set(problem_versions(session, mine.id)) == {mine.version, other.version}
        assert stored_problem(session, mine.id, other.version) == other


def test_a_problem_is_read_as_it_was_created(sessions: sessionmaker[Session], problems: dict[str, Problem]) -> None:
    fields = {
        "sizes": {"full": {"dim": -1e30, "batch_size": 2**53 - 1}, "smoke": {"dim": 1e16, "batch_size": -0.0}},
        "shapes": {"full": {"x": {"use": "held_out", "values": {"dim": 5e-324}}, "y": {"values": {"dim": 1e308}}}},
        "held_out_salt": "\u20ac\x01 and 16 characters",
        "tolerance": {"float32": {"atol": 1e-30, "rtol": -0.0}},
        "tags": ["größe"],
    }
    problem = parse_created(new_id(CREATED), problems["relu"].source, fields)
    with sessions.begin() as session:
        create_problem(session, problem, "ada", Visibility.PRIVATE)
    with sessions() as session:
        stored = stored_problem(session, problem.id, problem.version)
    assert stored == problem
    assert stored.version == problem.version
    assert stored.sized_source("full").count("-1e+30") == 1


def test_a_withdrawn_problem_is_not_current_and_cannot_be_changed(
    sessions: sessionmaker[Session], mine: Problem, problems: dict[str, Problem]
) -> None:
    with sessions.begin() as session:
        sync_problems(session, problems)
        known = locked_problem(session, mine.id)
        assert known is not None
        withdraw_problem(session, known, "ada")
    with sessions() as session:
        assert created_revisions(session) == {}
        assert created_problems(session, [mine.id]) == {}
        assert mine.id not in current_problems(session)
        assert stored_problem(session, mine.id, mine.version) == mine
        assert is_private(session, mine.id)
    with sessions.begin() as session:
        assert locked_problem(session, mine.id) is None


def test_only_its_owner_and_administrators_see_a_private_problem(
    sessions: sessionmaker[Session], mine: Problem
) -> None:
    viewers = {
        Viewer("ada"): True,
        Viewer("ada", own_only=True): True,
        Viewer("root", everything=True): True,
        Viewer("bob"): False,
        Viewer(): False,
    }
    with sessions.begin() as session:
        known = session.get_one(CreatedProblem, mine.id)
        assert {viewer: sees_problem(viewer, known) for viewer in viewers} == viewers
        publish_problem(session, known, "root")
        assert all(sees_problem(viewer, known) for viewer in (*viewers, Viewer("bob", own_only=True)))


def test_its_owners_private_submissions_are_ranked_until_it_is_published(
    sessions: sessionmaker[Session], mine: Problem, finish: Finish
) -> None:
    vetting = Vetting(mine.id, mine.version, "cpu", "smoke", "float32", "2", (), (), ())
    with sessions.begin() as session:
        record_vetting(session, vetting)
    private = {"problem": mine, "visibility": Visibility.PRIVATE, "author": "someone"}
    own = finish(**private, owner="ada")
    finish("class ModelNew: pass\n", **private, owner="root")

    def ranked() -> list[str]:
        with sessions() as session:
            return [each.submission_id for each in leaderboard(session, BoardKey(mine.id, "cpu", size="smoke"))]

    assert ranked() == [own]
    with sessions.begin() as session:
        publish_problem(session, session.get_one(CreatedProblem, mine.id), "root")
    assert ranked() == []
    finish("class ModelNew: ...  # later\n", **private, owner="ada")
    assert ranked() == []
    public = finish("class ModelNew: ...  # bob\n", problem=mine, owner="bob")
    assert ranked() == [public]


def test_its_publication_keeps_no_measurement_of_private_submissions(
    sessions: sessionmaker[Session], mine: Problem, finish: Finish
) -> None:
    finish(problem=mine, visibility=Visibility.PRIVATE, owner="ada")
    with sessions.begin() as session:
        record_vetting(session, Vetting(mine.id, mine.version, "cpu", "smoke", "float32", "2", (), (), ()))
    with sessions.begin() as session:
        (ranking,) = session.scalars(select(StoredRanking).filter_by(problem=mine.id))
        assert ranking.baseline_ms == 2.0
        publish_problem(session, session.get_one(CreatedProblem, mine.id), "root")
    with sessions() as session:
        assert session.scalars(select(StoredRanking).filter_by(problem=mine.id)).all() == []
    public = finish("class ModelNew: ...  # bob\n", problem=mine, owner="bob")
    with sessions() as session:
        (ranking,) = session.scalars(select(StoredRanking).filter_by(problem=mine.id))
        assert (ranking.entries, ranking.since) == (1, session.get_one(Submission, public).submitted_at)


def test_no_private_entry_comes_in_while_it_is_published(
    sessions: sessionmaker[Session], engine: Engine, mine: Problem, finish: Finish
) -> None:
    with sessions.begin() as session:
        record_vetting(session, Vetting(mine.id, mine.version, "cpu", "smoke", "float32", "2", (), (), ()))
    own = finish(problem=mine, visibility=Visibility.PRIVATE, owner="ada")
    with sessions.begin() as session:
        withdraw(session, own, "for now", "root")

    def comes_back() -> None:
        with sessions.begin() as session:
            reinstate(session, own, "root")

    other = Thread(target=comes_back)

    def between(_connection: object, _cursor: object, statement: str, *_more: object) -> None:
        """After the first deletion another transaction has its chance. It has to wait for this one."""
        if statement.startswith("DELETE") and current_thread() is not other and other.ident is None:
            other.start()
            other.join(0.5)

    event.listen(engine, "after_cursor_execute", between)
    with sessions.begin() as session:
        known = locked_problem(session, mine.id)
        assert known is not None
        publish_problem(session, known, "root")
    other.join()
    with sessions() as session:
        assert session.get_one(Submission, own).withdrawn_at is None
        assert leaderboard(session, BoardKey(mine.id, "cpu", size="smoke")) == []


def test_problems_are_read_by_the_hundreds(sessions: sessionmaker[Session], problems: dict[str, Problem]) -> None:
    made = [replace(problems["relu"], id=new_id(CREATED), vettings=()) for _ in range(501)]
    with sessions.begin() as session:
        for problem in made:
            create_problem(session, problem, None, Visibility.PUBLIC)
    with sessions() as session:
        assert created_revisions(session) == {problem.id: 1 for problem in made}
        found = created_problems(session, [problem.id for problem in made])
    assert {name: problem for name, (_, problem, _) in found.items()} == {problem.id: problem for problem in made}


def test_the_number_of_a_clients_problems_is_exact(
    sessions: sessionmaker[Session], mine: Problem, problems: dict[str, Problem]
) -> None:
    outcomes: list[bool] = []
    both = Barrier(2)

    def create(owner: str | None) -> None:
        problem = replace(problems["relu"], id=new_id(CREATED), vettings=())
        both.wait(30)
        try:
            with sessions.begin() as session:
                create_problem(session, problem, owner, Visibility.PRIVATE)
                refuse_too_many(session, owner, 2)
            outcomes.append(True)
        except TooManyProblems:
            outcomes.append(False)

    for owner, fit in (("ada", {True, False}), ("bob", {True}), ("bob", {False}), (None, {True})):
        outcomes.clear()
        threads = [Thread(target=create, args=(owner,)) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert (len(outcomes), set(outcomes)) == (2, fit), owner
    with sessions.begin() as session:
        known = locked_problem(session, mine.id)
        assert known is not None
        withdraw_problem(session, known, "ada")
        refuse_too_many(session, "ada", 1)


def test_the_schema_is_not_taken_back_while_there_are_problems_of_clients(
    sessions: sessionmaker[Session], engine: Engine, mine: Problem
) -> None:
    def downgrade() -> None:
        with engine.begin() as connection:
            config = alembic_config()
            config.attributes["connection"] = connection
            command.downgrade(config, "0017")

    with sessions.begin() as session:
        publish_problem(session, session.get_one(CreatedProblem, mine.id), "root")
    with pytest.raises(RuntimeError, match="there are 1 problems of clients"):
        downgrade()
    with sessions.begin() as session:
        assert stored_problem(session, mine.id, mine.version) == mine
        session.delete(session.get_one(CreatedProblem, mine.id))
    downgrade()
