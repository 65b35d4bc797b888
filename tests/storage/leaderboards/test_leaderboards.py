"""Ranking."""

from __future__ import annotations

import math
import threading
from dataclasses import replace
from typing import Any

import pytest
from alembic import command
from sqlalchemy import Engine, select, text
from sqlalchemy.orm import Session, sessionmaker

import storage.leaderboards.read
from evaluator.candidates.candidate import parse_candidate
from evaluator.evaluation import Gradients, Interval, Latency, Verdict
from evaluator.problems.problem import Problem
from evaluator.problems.requested import requested_problem
from evaluator.problems.vetting import Vetting
from evaluator.roofline import Roofline
from kerneljudge.terms.rules import NO_RULES, Rules
from storage.access.visibility import Viewer, Visibility
from storage.batches.batches import Batches, BatchLine
from storage.batches.export import BATCH_COLUMNS, batch_rows, batch_rows_after
from storage.database import alembic_config
from storage.grading.claims import Claims
from storage.grading.withdrawal import NotRanked, publish, withdraw
from storage.leaderboards.history import author_figures, rankings_of, records, sample, verdicts_of
from storage.leaderboards.read import (
    BoardKey,
    Entry,
    Ranking,
    ends_above,
    every_entry,
    leaderboard,
    leaderboard_entries,
    leaders,
)
from storage.models import AuthorBest, RankingRecord, StoredLeaderboardEntry, StoredRanking, Submission, VerdictCount
from storage.problems import sync_problems
from storage.submissions.deduplication import Ranks
from storage.submissions.new_submission import NewSubmission
from storage.submissions.related import previous_submission, ranking_leader
from storage.vettings import found_vettings, record_vetting
from tests.storage.conftest import LEASE_S, Finish, Submit, passed


def board(sessions: sessionmaker[Session], limit: int = 50, cursor: int = 0, **asked: Any) -> list[Entry]:
    with sessions() as session:
        return leaderboard(session, key(**asked), limit=limit, cursor=cursor)


def key(**asked: Any) -> BoardKey:
    return BoardKey(**{"problem": "relu", "device": "cpu", "size": "smoke", **asked})


def test_the_fastest_comes_first_and_equals_by_time(sessions: sessionmaker[Session], finish: Finish) -> None:
    speedups = (1.5, 3.0, 1.5, 2.0)
    ids = [finish(f"# {number}", evaluation={"speedup": speedup}) for number, speedup in enumerate(speedups)]
    entries = board(sessions)
    assert [(entry.rank, entry.speedup) for entry in entries] == [(1, 3.0), (2, 2.0), (3, 1.5), (4, 1.5)]
    assert [entry.submission_id for entry in entries] == [ids[1], ids[3], ids[0], ids[2]]


def test_the_leaders_are_the_first_of_each_ranking_and_device(sessions: sessionmaker[Session], finish: Finish) -> None:
    for author, device_name, speedup in (("ada", "one", 1.5), ("bob", "one", 2.5), ("ada", "two", 0.5)):
        finish(author=author, evaluation={"speedup": speedup, "environment": {"device_name": device_name}})
    finish(author="eve", size="full", evaluation={"speedup": 9.0})
    wrong = {"verdict": Verdict.WRONG_OUTPUT, "speedup": None, "speedup_interval": None, "latency_ms": None}
    finish(author="eve", evaluation=wrong)
    relu, gelu = (Ranking(problem, "cpu", "smoke", "float32") for problem in ("relu", "gelu"))
    with sessions() as session:
        found = leaders(session, [relu, gelu])
        assert [(entry.author, entry.device_name, entry.rank) for entry in found] == [
            ("bob", "one", 1),
            ("ada", "two", 1),
        ]
        assert [entry.speedup for entry in leaders(session, [relu._replace(size="full"), relu])] == [9.0, 2.5, 0.5]
        # A query has at most 65,535 parameters on PostgreSQL, and fewer on SQLite.
        many = [relu._replace(problem=f"problem {number}") for number in range(17_000)]
        assert [entry.speedup for entry in leaders(session, [*many, relu])] == [2.5, 0.5]
        # Each value is asked for, and this combination is not.
        apart = [gelu._replace(size="full"), relu]
        assert [entry.speedup for entry in leaders(session, apart)] == [2.5, 0.5]
        assert leaders(session, [relu], "training") == leaders(session, [gelu]) == leaders(session, []) == []


def test_an_entry_says_what_it_is(
    sessions: sessionmaker[Session], finish: Finish, problems: dict[str, Problem]
) -> None:
    submission_id = finish(author="ada", label="fused")
    (entry,) = board(sessions)
    assert (entry.submission_id, entry.author, entry.label) == (submission_id, "ada", "fused")
    assert (entry.speedup, entry.speedup_interval) == (2.0, Interval(1.9, 2.1))
    assert (entry.latency_ms, entry.baseline_ms, entry.gradients) == (1.0, 2.0, Gradients.MATCH)
    assert (entry.speedup_training, entry.speedup_training_interval) == (None, None)
    assert (entry.device, entry.device_name) == ("cpu", "a processor")
    assert (entry.problem, entry.problem_version) == ("relu", problems["relu"].version)


def test_the_best_of_each_author_and_source_is_ranked(sessions: sessionmaker[Session], finish: Finish) -> None:
    for author, speedup in (("ada", 1.0), ("ada", 2.0), ("bob", 1.5), (None, 1.2), (None, 1.1)):
        finish(author=author, evaluation={"speedup": speedup})
    assert [(entry.author, entry.speedup) for entry in board(sessions)] == [("ada", 2.0), ("bob", 1.5), (None, 1.2)]


@pytest.mark.parametrize("changes", [{"device": "cuda"}, {"size": "full"}, {"precision": "float16"}])
def test_what_is_measured_otherwise_is_not_mixed_in(
    sessions: sessionmaker[Session], finish: Finish, changes: dict[str, Any]
) -> None:
    finish(**changes)
    assert board(sessions) == []
    kind = changes.get("device", "cpu")
    same = {name: value for name, value in changes.items() if name != "device"}
    assert len(board(sessions, device=kind, **same)) == 1


def test_the_tier_full_alone_is_ranked(sessions: sessionmaker[Session], finish: Finish) -> None:
    slower = finish("# slower")
    quick = finish("# quick", tier="quick", author="ada", evaluation={"speedup": 3.0, "speedup_interval": None})
    assert [entry.submission_id for entry in board(sessions)] == [slower]
    with sessions.begin() as session, pytest.raises(NotRanked, match="of the tier quick"):
        withdraw(session, quick, "for the test", "us")
    with sessions.begin() as session:
        withdraw(session, slower, "for the test", "us")
    assert board(sessions) == []
    with sessions() as session:
        assert records_of_relu(session) == []
    private = finish("# private", tier="quick", owner="ada", visibility=Visibility.PRIVATE)
    with sessions.begin() as session:
        publish(session, private, Visibility.PUBLIC, "us")
    assert board(sessions) == []
    with sessions() as session:
        assert session.get_one(Submission, quick).tier == "quick"


def records_of_relu(session: Session) -> list[RankingRecord]:
    return [record for record in session.scalars(select(RankingRecord)) if record.submission_id]


def test_only_what_passed_is_ranked(sessions: sessionmaker[Session], finish: Finish) -> None:
    finish(evaluation={"verdict": Verdict.WRONG_OUTPUT, "speedup": None})
    assert board(sessions) == []


def test_the_training_track_admits_only_gradients_that_match(sessions: sessionmaker[Session], finish: Finish) -> None:
    figures = {
        "speedup_training": 1.25,
        "speedup_training_interval": Interval(1.2, 1.3),
        "latency_training_ms": Latency(4.0, 5.0, 4.0, 5.0),
    }
    finish("# match", evaluation=figures)
    for gradients in (Gradients.PARTIAL, Gradients.MISSING):
        finish(f"# {gradients}", evaluation={**figures, "gradients": gradients})
    finish("# no figure")
    (entry,) = board(sessions, track="training")
    assert (entry.speedup, entry.speedup_interval) == (1.25, Interval(1.2, 1.3))
    assert (entry.latency_ms, entry.baseline_ms) == (4.0, 5.0)
    assert len(board(sessions)) == 4
    (same,) = [each for each in board(sessions) if each.submission_id == entry.submission_id]
    assert (same.speedup_training, same.speedup_training_interval) == (1.25, Interval(1.2, 1.3))


def test_only_the_current_version_of_a_problem_is_ranked(
    sessions: sessionmaker[Session], finish: Finish, problems: dict[str, Problem]
) -> None:
    finish()
    changed = replace(problems["relu"], source="# changed\n" + problems["relu"].source)
    with sessions.begin() as session:
        sync_problems(session, {**problems, "relu": changed})
    assert board(sessions) == []
    with sessions.begin() as session:
        sync_problems(session, problems)
    assert len(board(sessions)) == 1


def test_pages_continue_after_a_rank(sessions: sessionmaker[Session], finish: Finish) -> None:
    for speedup in (1.0, 2.0, 3.0):
        finish(f"# {speedup}", evaluation={"speedup": speedup})
    assert [entry.rank for entry in board(sessions, limit=2)] == [1, 2]
    assert [(entry.rank, entry.speedup) for entry in board(sessions, limit=2, cursor=2)] == [(3, 1.0)]


def test_what_different_devices_measured_is_not_ranked_together(
    sessions: sessionmaker[Session], finish: Finish
) -> None:
    for name, speedup in (("b", 9.0), ("a", 1.0), (None, 4.0), ("a", 2.0)):
        environment = {} if name is None else {"device_name": name}
        finish(f"# {speedup}", evaluation={"speedup": speedup, "environment": environment})
    # The best of each author and source is that of each device.
    finish("# 9.0", evaluation={"speedup": 3.0, "environment": {"device_name": "a"}})
    ranks = [(entry.device_name, entry.rank, entry.speedup) for entry in board(sessions)]
    assert ranks == [(None, 1, 4.0), ("a", 1, 3.0), ("a", 2, 2.0), ("a", 3, 1.0), ("b", 1, 9.0)]
    paged = [board(sessions, limit=2, cursor=cursor) for cursor in (0, 2, 4)]
    assert [(entry.device_name, entry.rank, entry.speedup) for page in paged for entry in page] == ranks


def test_a_board_may_be_of_one_device(sessions: sessionmaker[Session], finish: Finish) -> None:
    for name, speedup in (("a", 1.0), ("b", 2.0)):
        finish(f"# {name}", evaluation={"speedup": speedup, "environment": {"device_name": name}})
    assert [(entry.device_name, entry.rank) for entry in board(sessions, device_name="b")] == [("b", 1)]
    assert board(sessions, device_name="c") == []


def test_every_entry_comes_in_the_order_of_the_board(
    sessions: sessionmaker[Session], finish: Finish, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Pages end between equal speedups, too.
    monkeypatch.setattr(storage.leaderboards.read, "_AT_ONCE", 2)
    for number, (name, speedup) in enumerate([("a", 2.0), ("a", 1.0), ("b", 3.0), *[("a", 1.5)] * 4]):
        finish(f"# {number}", evaluation={"speedup": speedup, "environment": {"device_name": name}})
    whole = board(sessions)
    assert [entry.rank for entry in whole] == [1, 2, 3, 4, 5, 6, 1]
    for cursor in range(9):
        assert list(every_entry(sessions, key(), cursor)) == whole[cursor:]


def kept(sessions: sessionmaker[Session]) -> dict[str, Any]:
    """Everything that leaderboards are read from, without numbers that only tell rows apart."""
    with sessions() as session:
        rankings = {row.id: row for row in session.scalars(select(StoredRanking))}
        tables: dict[str, Any] = {
            "rankings": sorted(
                (row.problem, row.device, row.size, row.baseline, row.track, row.device_name, row.entries, row.best)
                for row in rankings.values()
            )
        }
        for table in (StoredLeaderboardEntry, RankingRecord, AuthorBest):
            rows = []
            for row in session.scalars(select(table)):
                values = {column.name: getattr(row, column.name) for column in table.__table__.columns}
                ranking = rankings[values.pop("ranking_id")]
                rows.append(((ranking.track, ranking.baseline, ranking.device_name), sorted(values.items(), key=str)))
            tables[table.__tablename__] = sorted(rows, key=str)
        columns = (VerdictCount.problem, VerdictCount.verdict, VerdictCount.tier, VerdictCount.count)
        counts = session.execute(select(*columns))
        tables["counts"] = sorted(tuple(row) for row in counts)
    return tables


def test_what_leaderboards_are_read_from_can_be_made_from_the_evaluations(
    engine: Engine, sessions: sessionmaker[Session], finish: Finish
) -> None:
    training = {
        "speedup_training": 1.25,
        "speedup_training_interval": Interval(1.2, 1.3),
        "latency_training_ms": Latency(4.0, 5.0, 4.0, 5.0),
    }
    bound = Roofline(0.5, "memory", 0.5, 0.5, None, 0.0, 100, 0, 1e9, None)
    for number, (author, speedup) in enumerate(
        (("ada", 1.5), ("bob", 1.25), (None, 2.0), ("ada", 3.0), ("bob", 3.0), (None, 0.5))
    ):
        evaluation = {"speedup": speedup, "speedup_interval": Interval(speedup - 0.1, speedup + 0.1)}
        finish(f"# {number % 4}", author=author, label=f"c{number}", evaluation=evaluation)
    # The same source again, faster: a record of its own, and a better place for the same contender.
    finish("# 0", author="ada", label="again", evaluation={"speedup": 3.5})
    finish("# a", author="ada", evaluation={**training, "roofline": {"inference": bound}, "roofline_share": 0.5})
    finish("# b", author="bob", evaluation={**training, "gradients": Gradients.MISSING, "speedup_compiled": 1.5})
    finish("# c", baseline="compile", evaluation={"environment": {}})
    finish("# d", evaluation={"verdict": Verdict.WRONG_OUTPUT, "speedup": None})
    by_and_by = kept(sessions)
    assert len(by_and_by["rankings"]) == 3
    assert ("relu", "wrong_output", "full", 1) in by_and_by["counts"]
    with engine.begin() as connection:
        config = alembic_config()
        config.attributes["connection"] = connection
        command.downgrade(config, "0003")
        command.upgrade(config, "head")
    assert kept(sessions) == by_and_by


def test_verdicts_are_counted_by_tier_and_told_of_the_ranked_one(
    engine: Engine, sessions: sessionmaker[Session], finish: Finish, problems: dict[str, Problem]
) -> None:
    def told() -> dict[Verdict, int]:
        with sessions() as session:
            return dict(verdicts_of(session, "relu", problems["relu"].version))

    finish("# 1")
    finish("# 2", evaluation={"verdict": Verdict.WRONG_OUTPUT, "speedup": None})
    for number, tier in enumerate(("check", "check", "quick")):
        finish(f"# below {number}", tier=tier)
    finish("# private", tier="check", visibility=Visibility.PRIVATE)
    expected = [
        ("relu", "passed", "check", 2),
        ("relu", "passed", "full", 1),
        ("relu", "passed", "quick", 1),
        ("relu", "wrong_output", "full", 1),
    ]
    assert kept(sessions)["counts"] == expected
    assert told() == {Verdict.PASSED: 1, Verdict.WRONG_OUTPUT: 1}
    # A schema from before has one count for all tiers, and they are told apart again by the submissions.
    for target in ("0015", "head"):
        with engine.begin() as connection:
            config = alembic_config()
            config.attributes["connection"] = connection
            (command.downgrade if target == "0015" else command.upgrade)(config, target)
            counts = connection.execute(text("SELECT verdict, count FROM verdict_counts ORDER BY verdict")).all()
            if target == "0015":
                assert [tuple(row) for row in counts] == [("passed", 4), ("wrong_output", 1)]
    assert kept(sessions)["counts"] == expected


def test_records_are_who_was_fastest_when(sessions: sessionmaker[Session], finish: Finish) -> None:
    for number, speedup in enumerate((1.5, 1.25, 2.0, 2.0, 1.75, 3.0)):
        finish(f"# {number}", evaluation={"speedup": speedup})
    with sessions() as session:
        (ranking,) = rankings_of(session, "relu")
        assert [record.speedup for record in records(session, ranking)] == [1.5, 2.0, 3.0]


def test_two_that_end_at_once_are_both_ranked(
    sessions: sessionmaker[Session], submit: Submit, problems: dict[str, Problem]
) -> None:
    ids = [submit(f"# {number}", author="ada") for number in range(8)]
    start = threading.Barrier(len(ids))
    errors: list[BaseException] = []

    def grade(submission_id: str, speedup: float) -> None:
        try:
            with sessions.begin() as session:
                build = Claims(session).claim(submission_id, "build", f"b{submission_id}", LEASE_S)
                assert build is not None
                assert Claims(session).record_built(build, seconds=0.1, log="")
                claim = Claims(session).claim(submission_id, "evaluate", f"w{submission_id}", LEASE_S)
            assert claim is not None
            start.wait(30)
            with sessions.begin() as session:
                assert Claims(session).record_evaluation(claim, passed(problems["relu"], speedup=speedup))
        except BaseException as error:  # noqa: BLE001 - looked at below, in the test's own thread
            errors.append(error)

    threads = [threading.Thread(target=grade, args=(each, 1.0 + number)) for number, each in enumerate(ids)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    with sessions() as session:
        (ranking,) = rankings_of(session, "relu")
        assert (ranking.entries, ranking.best) == (8, 0.95 * 8.0)
        assert verdicts_of(session, "relu", problems["relu"].version) == {Verdict.PASSED: 8}
        assert [each.speedup for each in session.scalars(select(AuthorBest))] == [8.0]


def test_a_ranking_is_read_in_parts_and_by_author_or_label(sessions: sessionmaker[Session], finish: Finish) -> None:
    for number, author in enumerate(("ada", "bob", "ada", None)):
        evaluation = {"speedup": 4.0 - number, "speedup_interval": Interval(3.75 - number, 4.25 - number)}
        finish(f"# {number}", author=author, label=f"c{number % 2}", evaluation=evaluation)
    with sessions() as session:
        (ranking,) = rankings_of(session)
        assert [(entry.rank, entry.speedup) for entry in leaderboard_entries(session, ranking, limit=2, cursor=1)] == [
            (2, 3.0),
            (3, 2.0),
        ]
        assert [entry.label for entry in leaderboard_entries(session, ranking, author="ada")] == ["c0", "c0"]
        assert [entry.speedup for entry in leaderboard_entries(session, ranking, label="c1")] == [3.0, 1.0]
        assert leaderboard_entries(session, ranking, author="ada", label="c1") == []
        assert ends_above(session, ranking, 2) == [(3.75, 4.25), (2.75, 3.25)]
        drawn = {each.speedup for each in sample(session, ranking, 3)}
        assert len(drawn) == 3
        assert drawn < {4.0, 3.0, 2.0, 1.0}


def test_authors_are_ordered_by_how_many_they_make_faster_then_by_their_mean(
    sessions: sessionmaker[Session], finish: Finish, problems: dict[str, Problem]
) -> None:
    for author, name, speedup in (
        ("one", "relu", 9.0),
        ("two", "relu", 2.0),
        ("two", "gelu", 2.0),
        ("three", "gelu", 0.5),
        (None, "gelu", 5.0),
    ):
        problem = problems[name]
        finish(f"# {speedup}", problem=problem, author=author, evaluation={"speedup": speedup})
    with sessions() as session:
        figures = author_figures(session, [ranking.id for ranking in rankings_of(session)], 10)
    found = [(each.author, each.problems, each.faster) for each in figures]
    assert found == [("two", 2, 2), ("one", 1, 1), ("three", 1, 0)]
    assert math.exp(figures[0].log_speedup) == pytest.approx(2.0)


def test_a_submission_is_held_against_the_author_s_one_before_and_the_leader(
    sessions: sessionmaker[Session], finish: Finish
) -> None:
    leader = finish("# fastest", author="bob", evaluation={"speedup": 3.0})
    before = finish("# first", author="ada", evaluation={"speedup": 1.0})
    last = finish("# second", author="ada", evaluation={"speedup": 2.0})
    nobody = finish("# nobody's")
    with sessions() as session:

        def others(submission_id: str) -> tuple[str | None, str | None]:
            submission = session.get_one(Submission, submission_id)
            found = previous_submission(session, submission), ranking_leader(session, submission)
            return tuple(None if each is None else each.submission_id for each in found)  # type: ignore[return-value]

        assert others(last) == (before, leader)
        assert others(before) == (None, leader)
        assert others(leader) == (None, None)
        assert others(nobody) == (None, leader)
        previous = previous_submission(session, session.get_one(Submission, last))
        assert previous is not None
        assert (previous.author, previous.source) == ("ada", "# first")


def test_a_batch_is_a_table_of_its_lines(
    sessions: sessionmaker[Session], finish: Finish, problems: dict[str, Problem]
) -> None:
    codes, strict = ("class ModelNew: ...", "nothing", "nothing"), Rules(languages=("cuda", "triton"))
    lines = [
        BatchLine(
            number,
            NewSubmission(
                problems["relu"], parse_candidate(code=code), "cpu", "smoke", label=f"l{number}", rules=rules
            ),
        )
        for number, (code, rules) in enumerate(zip(codes, (strict, NO_RULES, NO_RULES), strict=True), 1)
    ]
    with sessions.begin() as session:
        batch_id = Batches(session).create().id
        Batches(session).add(batch_id, lines, [], Ranks())
    rows = list(batch_rows(sessions, batch_id))
    with sessions() as session:
        assert all(set(row) == set(BATCH_COLUMNS) for row in rows)
        assert [(row["line"], row["status"], row["verdict"], row["shared"]) for row in rows] == [
            (1, "queued", None, False),
            (2, "done", "invalid_source", False),
            (3, "done", "invalid_source", True),
        ]
        assert [row["rules"] for row in rows] == ["languages=cuda+triton", None, None]
        only = batch_rows_after(session, batch_id, 2, 10, verdict="invalid_source", problem="relu", label="l3")
        assert [row["line"] for row in only] == [3]
        assert verdicts_of(session, "relu", problems["relu"].version) == {Verdict.INVALID_SOURCE: 1}


_AGENT = Viewer("agent", own_only=True)


def test_an_author_of_that_name_elsewhere_takes_nothing_from_the_results_of_ones_own(
    sessions: sessionmaker[Session], finish: Finish
) -> None:
    finish("# mine", author="model", owner="agent", evaluation={"speedup": 1.5})
    finish("# theirs", author="model", owner="other", evaluation={"speedup": 4.0})
    with sessions() as session:
        rankings = [ranking.id for ranking in rankings_of(session, viewer=_AGENT)]
        (own,) = author_figures(session, rankings, 10, _AGENT)
        (every,) = author_figures(session, rankings, 10)
    assert (own.author, own.problems, own.faster) == ("model", 1, 1)
    assert own.log_speedup == pytest.approx(math.log(1.5))
    assert every.log_speedup == pytest.approx(math.log(4.0))


def test_newer_software_of_others_hides_no_entry_of_ones_own(sessions: sessionmaker[Session], finish: Finish) -> None:
    old, new = ({"environment": {"device_name": "one", "torch": version}} for version in ("2.12", "2.13"))
    finish("# mine", author="agent", owner="agent", evaluation={"speedup": 1.5, **old})
    finish("# theirs", author="other", owner="other", evaluation={"speedup": 4.0, **new})
    relu = Ranking("relu", "cpu", "smoke", "float32")
    with sessions() as session:
        assert [entry.speedup for entry in leaders(session, [relu])] == [4.0]
        assert [entry.speedup for entry in leaders(session, [relu], viewer=_AGENT)] == [1.5]
        assert [ranking.best for ranking in rankings_of(session, newest=True, viewer=_AGENT)] == [
            pytest.approx(entry.speedup_interval.low)
            for entry in leaders(session, [relu], viewer=_AGENT)
            if entry.speedup_interval is not None
        ]


def test_a_problem_from_a_request_has_no_leaderboard_and_no_record(
    sessions: sessionmaker[Session], finish: Finish, problems: dict[str, Problem]
) -> None:
    problem = requested_problem(problems["relu"].source)
    finish("# before", problem=problem, size="full")
    with sessions.begin() as session:
        record_vetting(session, Vetting(problem.id, problem.version, "cpu", "full", "float32", "2.13", (), (), ()))
    vetted = finish("# after", problem=problem, size="full")
    with sessions() as session:
        stored = session.get_one(Submission, vetted).evaluation
        assert stored is not None
        assert stored.to_evaluation().speedup == 2.0
        assert session.scalars(select(StoredRanking)).all() == []
        assert records_of_relu(session) == []
        assert verdicts_of(session, problem.id, problem.version) == {Verdict.PASSED: 2}
        assert found_vettings(session) == {}
