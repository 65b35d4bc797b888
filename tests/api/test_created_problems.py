"""Problems that clients create: their versions, their leaderboards, and what others are told of them."""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from pathlib import Path
from threading import Barrier, Thread
from typing import Any

import httpx
import pytest
from sqlalchemy import select
from sqlalchemy.orm import Session

from api.http.errors import NotFound
from api.services import catalogue, problem_changes
from api.services.catalogue import Catalogue
from api.services.container import Services
from evaluator.problems.loading import load_problem
from evaluator.problems.problem import Problem
from evaluator.problems.vetting import Vetting
from runtime.settings import Settings
from storage.access.keys import Scope
from storage.access.visibility import Viewer
from storage.created_problems import created_problems, withdraw_problem
from storage.models import AuditEvent, CreatedProblem
from storage.problems import stored_problem, sync_problems
from storage.vettings import record_vetting
from tests.api.conftest import PROBLEMS, assert_problem
from tests.api.inmemory import AppTransport
from tests.api.keyring import Keyring
from tests.api.outline import page
from tests.api.seeds import Seeds, passed
from tests.api.test_private import ADMIN, LINES, ROUTES, ask

SECRET = "zq7moonlight"
"""Stands in everything about the private problem."""
URL = "/api/v1/problems"
SOURCE = (PROBLEMS / "relu" / "reference.py").read_text(encoding="utf-8") + f"# {SECRET}\n"
CODE = f"class ModelNew: ...\n# {SECRET}\n"
FIELDS = {
    "title": f"Title {SECRET}",
    "description": f"Description {SECRET}.",
    "sizes": {"smoke": {"batch_size": 16, "dim": 64}, "full": {}},
    "tolerance": {"float32": {"atol": 1e-3, "rtol": 1e-3}},
    "gradients": {"policy": "none"},
    "inputs": {"domain": "as_written"},
    "reference": {"row_independent": True},
    "tags": [SECRET],
    "shapes": {"smoke": {"odd": {"use": "checked", "values": {"dim": 63}}}},
    "rules": {"forbidden_operators": ["matmul"]},
}


@pytest.fixture
def api_settings(tmp_path: Path) -> Settings:
    """An installation that asks for keys and takes references; nothing of it is shared between callers."""
    return Settings(
        data_dir=tmp_path / "data",
        problems_dir=PROBLEMS,
        port=0,
        auth="required",
        request_references=True,
        answer_age_s=0,
    )


@pytest.fixture
def keys(transport: AppTransport, services: Services) -> Keyring:
    keyring = Keyring(services.sessions)
    for client in ("ada", "bob"):
        keyring.make(client, [Scope.REFERENCES])
    keyring.make("plain")
    keyring.make("root", [Scope.ADMIN])
    return keyring


def create(http: httpx.Client, headers: dict[str, str], **fields: Any) -> dict[str, Any]:
    answer = http.post(URL, json={"source": SOURCE, **fields}, headers=headers)
    assert answer.status_code == 201, answer.text
    assert answer.headers["location"] == f"{URL}/{answer.json()['id']}"
    return dict(answer.json())


def problem_of(services: Services, record: dict[str, Any]) -> Problem:
    with services.readers() as session:
        problem = stored_problem(session, record["id"], record["version"])
    assert problem is not None
    return problem


def vetted(services: Services, record: dict[str, Any]) -> None:
    """A worker finds the problem good."""
    found = {"problem": record["id"], "version": record["version"], "device": "cpu", "size": "smoke"}
    vetting = Vetting(**found, precision="float32", torch="2", labels=(), refusals=(), checks=())
    with services.sessions.begin() as session:
        record_vetting(session, vetting)


def submit(http: httpx.Client, headers: dict[str, str], problem: str, **changes: Any) -> httpx.Response:
    body = {"problem": problem, "code": CODE, "device": "cpu", "size": "smoke", "author": SECRET, **changes}
    return http.post("/api/v1/submissions", json=body, headers=headers)


def graded(
    http: httpx.Client,
    services: Services,
    seeds: Seeds,
    headers: dict[str, str],
    record: dict[str, Any],
    **changes: Any,
) -> str:
    """The id of a submission to the problem that passed."""
    answer = submit(http, headers, record["id"], **changes)
    assert answer.status_code == 202, answer.text
    return seeds.evaluate(answer.json()["id"], passed(problem_of(services, record)))


def board(http: httpx.Client, headers: dict[str, str], problem: str, **params: str) -> httpx.Response:
    query = {"problem": problem, "device": "cpu", "size": "smoke", **params}
    return http.get("/api/v1/leaderboard", params=query, headers=headers)


def test_a_problem_has_the_fields_of_problem_toml(http: httpx.Client, services: Services, keys: Keyring) -> None:
    record = create(http, keys["ada"], **FIELDS)
    problem = problem_of(services, record)
    assert (record["visibility"], record["owner"], record["versions"]) == ("private", "ada", [record["version"]])
    assert (problem.title, problem.description) == (FIELDS["title"], FIELDS["description"])
    assert problem.sizes == FIELDS["sizes"]
    assert problem.tolerance("float32").atol == 1e-3
    assert (problem.gradient_policy, problem.input_domain, problem.row_independent) == ("none", "as_written", True)
    assert problem.shapes["smoke"]["odd"].values == {"dim": 63}
    assert (problem.tags, problem.rules.to_dict()) == ((SECRET,), FIELDS["rules"])
    assert http.get(f"{URL}/{record['id']}", headers=keys["ada"]).json() == record


def test_a_file_of_kernelbench_needs_no_field(http: httpx.Client, services: Services, keys: Keyring) -> None:
    record = create(http, keys["ada"])
    assert record["title"] == "Applies ReLU to every element"
    assert (record["sizes"], record["input_domain"], record["dtype"]) == ({"full": {}}, "real", "float32")
    assert problem_of(services, record).source == SOURCE


@pytest.mark.parametrize(
    ("changes", "field", "words"),
    [
        ({"source": "x = 1"}, "source", "it does not define Model"),
        ({"source": "class Model(:"}, "source", "it does not parse"),
        ({"source": f"# {'x' * 300_000}"}, "source", "at most 300,000"),
        ({"sizes": {"smoke": {}}}, "sizes", "[sizes.full]"),
        ({"sizes": {"full": {"nothing": 1}}}, "source", "nothing"),
        ({"sizes": {"full": {}, "a b": {}}}, "sizes", "a size is named"),
        ({"sizes": {f"s{n}": {} for n in range(17)}}, "sizes", "at most 16"),
        ({"title": "x" * 201}, "title", "at most 200"),
        ({"title": "  "}, "title", "non-empty"),
        ({"dtype": "int8"}, "dtype", "float32"),
        ({"tags": ["x" * 61]}, "tags", "at most 60"),
        ({"limits": {"call_s": 9}}, "limits", "Extra inputs"),
        ({"kernelbench": {"level": 1}}, "kernelbench", "Extra inputs"),
        ({"shapes": {"full": {"same": {"values": {"dim": 393216}}}}}, "shapes", "shapes.full.same"),
        ({"rules": {"forbidden_operators": ["rely"]}}, "rules", "forbidden_operators may name"),
        ({"neighbours": {"colour": 1}}, "neighbours", "unknown field 'colour'"),
        ({"neighbours": {"kinds": [[1]], "vary": {"dim": {}}}}, "neighbours", "kinds must be a list"),
        (
            {"neighbours": {"vary": {"dim": {}}}, "sizes": {"full": {"dim": 10**12}}},
            "neighbours",
            "is above 2,147,483,648",
        ),
        ({"sizes": {"full": {"dim": 10**400}}}, "sizes", "a whole number must be below"),
        ({"sizes": {"full": {f"g{n}": 1 for n in range(65)}}}, "sizes", "at most 64"),
        ({"shapes": {"full": {f"x{n}": {"values": {"dim": n}} for n in range(1500)}}}, "shapes", "at most 16"),
        ({"shapes": {"full": {"x": {"values": {"dim": 10**400}}}}}, "shapes", "a whole number must be below"),
        ({"shapes": {"full": {"x": {"values": {f"g{n}": n for n in range(65)}}}}}, "shapes", "at most 64"),
        ({"held_out_salt": "\0" * 16}, "held_out_salt", "without NUL"),
    ],
)
def test_a_bad_field_is_named(
    http: httpx.Client, keys: Keyring, changes: dict[str, Any], field: str, words: str
) -> None:
    refused = assert_problem(http.post(URL, json={"source": SOURCE, **changes}, headers=keys["ada"]), 422)
    named = {error["field"]: error["message"] for error in refused["errors"]}
    found = {name: message for name, message in named.items() if name.partition(".")[0] == field}
    assert found, named
    assert any(words in message for message in found.values()), found
    listed = http.get(URL, headers=keys["ada"]).json()["items"]
    assert {each["owner"] for each in listed} == {None}


@pytest.mark.parametrize("digits", [400, 5000])
def test_a_number_that_python_cannot_take_is_refused(http: httpx.Client, keys: Keyring, digits: int) -> None:
    content = json.dumps({"source": SOURCE, "sizes": {"full": {"dim": 0}}}).replace("0", "9" * digits)
    headers = {**keys["ada"], "Content-Type": "application/json"}
    assert http.post(URL, content=content, headers=headers).status_code in (400, 422)


@pytest.mark.parametrize("text", ["\ud800", "a\0b"])
def test_texts_that_no_database_takes_are_no_fault(http: httpx.Client, keys: Keyring, text: str) -> None:
    content = json.dumps({"source": SOURCE, "title": f"t{text}", "description": f"d{text}", "tags": [text]})
    headers = {**keys["ada"], "Content-Type": "application/json"}
    answer = http.post(URL, content=content, headers=headers)
    assert answer.status_code in (201, 422), answer.text
    assert page(http, "/", headers=keys["ada"])


def test_only_keys_that_may_have_references_executed_create_problems(
    http: httpx.Client, services: Services, keys: Keyring
) -> None:
    body = {"source": SOURCE}
    assert_problem(http.post(URL, json=body), 401)
    assert_problem(http.post(URL, json=body, headers=keys["plain"]), 403)
    record = create(http, keys["ada"])
    services.settings = services.settings.model_copy(update={"request_references": False})
    for answer in (
        http.post(URL, json=body, headers=keys["ada"]),
        http.put(f"{URL}/{record['id']}", json=body, headers=keys["ada"]),
    ):
        assert "KERNELJUDGE_REQUEST_REFERENCES" in str(assert_problem(answer, 403)["detail"])


def test_a_repeated_request_makes_one_problem(http: httpx.Client, keys: Keyring) -> None:
    key = {"Idempotency-Key": "once"}
    first, again = (http.post(URL, json={"source": SOURCE}, headers={**keys["ada"], **key}) for _ in range(2))
    assert (first.status_code, again.status_code) == (201, 201)
    assert first.json() == again.json()
    assert ("idempotency-replayed" in first.headers, again.headers["idempotency-replayed"]) == (False, "true")
    for other in ({"source": SOURCE + "# other\n"}, {"source": SOURCE, "title": "Another"}):
        assert_problem(http.post(URL, json=other, headers={**keys["ada"], **key}), 409)
    # The same key of another client is another one.
    elsewhere = http.post(URL, json={"source": SOURCE}, headers={**keys["bob"], **key}).json()
    assert elsewhere["id"] != first.json()["id"]


def test_a_quota_bounds_the_versions_of_a_day(http: httpx.Client, services: Services, keys: Keyring) -> None:
    services.settings = services.settings.model_copy(update={"problems_per_day": 2})
    record = create(http, keys["ada"])
    change = {"source": SOURCE + "# 2\n"}
    # What keeps the version costs nothing.
    for body in ({"source": SOURCE, "title": "Another"}, {"source": SOURCE}, change, {**change, "title": "Another"}):
        assert http.put(f"{URL}/{record['id']}", json=body, headers=keys["ada"]).status_code == 200
    for answer in (
        http.post(URL, json=change, headers=keys["ada"]),
        http.put(f"{URL}/{record['id']}", json={"source": SOURCE + "# 3\n"}, headers=keys["ada"]),
    ):
        assert "2 problems a day" in str(assert_problem(answer, 429)["detail"])
        assert int(answer.headers["retry-after"]) > 0
    assert len(http.get(f"{URL}/{record['id']}", headers=keys["ada"]).json()["versions"]) == 2
    create(http, keys["bob"])


def test_a_client_has_a_number_of_problems_at_a_time(http: httpx.Client, services: Services, keys: Keyring) -> None:
    services.settings = services.settings.model_copy(update={"problems_per_client": 2})
    first, second = create(http, keys["ada"]), create(http, keys["ada"])
    refused = http.post(URL, json={"source": SOURCE}, headers=keys["ada"])
    assert "at most 2 problems" in str(assert_problem(refused, 409)["detail"])
    create(http, keys["bob"])
    change = {"source": f"{SOURCE}# changed\n"}
    assert http.put(f"{URL}/{second['id']}", json=change, headers=keys["ada"]).status_code == 200
    assert http.delete(f"{URL}/{first['id']}", headers=keys["ada"]).status_code == 204
    create(http, keys["ada"])


def test_a_change_of_a_problem_reads_no_other_again(
    http: httpx.Client, services: Services, keys: Keyring, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed, same = create(http, keys["ada"]), create(http, keys["bob"])
    everything = Viewer("root", everything=True)
    with services.readers() as session:
        before = services.catalogue(session, everything)
        assert services.catalogue(session, everything) is before
    read: list[list[str]] = []

    def recorded(session: Session, ids: Collection[str]) -> Any:
        read.append(sorted(ids))
        return created_problems(session, ids)

    monkeypatch.setattr(catalogue, "created_problems", recorded)
    http.put(f"{URL}/{changed['id']}", json={"source": f"{SOURCE}# changed\n"}, headers=keys["ada"])
    vetted(services, same)
    start = Barrier(4)

    def reads() -> None:
        start.wait(30)
        with services.readers() as session:
            services.catalogue(session, everything)

    threads = [Thread(target=reads) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # Once for each change: by the request itself, and by one of the threads.
    assert read == [[changed["id"]], []]
    with services.readers() as session:
        after = services.catalogue(session, everything)
    assert after.problems[changed["id"]].source == f"{SOURCE}# changed\n"
    assert after.problems[same["id"]].vettings != ()
    assert all(after.problems[name] is before.problems[name] for name in services.problems)


def test_an_unknown_problem_is_answered_with_some_of_the_known_ones() -> None:
    relu = load_problem(PROBLEMS / "relu")
    for count, more in ((40, "p39"), (43, "p39 and 3 more")):
        known = Catalogue({f"p{number}": relu for number in range(count)})
        with pytest.raises(NotFound) as refused:
            known.problem("other")
        assert str(refused.value.detail).endswith(f"p38, {more}")


def test_a_change_makes_a_version_and_the_old_board_stays(
    http: httpx.Client, services: Services, keys: Keyring, seeds: Seeds
) -> None:
    first = create(http, keys["ada"], **FIELDS)
    vetted(services, first)
    old = graded(http, services, seeds, keys["ada"], first)
    assert http.get(f"/api/v1/submissions/{old}", headers=keys["ada"]).json()["problem_version"] == first["version"]
    renamed = http.put(f"{URL}/{first['id']}", json={"source": SOURCE, **FIELDS, "title": "New"}, headers=keys["ada"])
    assert (renamed.json()["version"], renamed.json()["title"]) == (first["version"], "New")

    changed = {"source": SOURCE, **FIELDS, "tolerance": {"float32": {"atol": 1e-5, "rtol": 1e-5}}}
    second = http.put(f"{URL}/{first['id']}", json=changed, headers=keys["ada"]).json()
    assert second["version"] != first["version"]
    assert second["versions"] == [second["version"], first["version"]]
    vetted(services, second)
    new = graded(http, services, seeds, keys["ada"], second)
    boards = {
        version: [each["submission"] for each in board(http, keys["ada"], first["id"], **params).json()["entries"]]
        for version, params in {
            "current": {},
            "first": {"problem_version": first["version"]},
            "second": {"problem_version": second["version"]},
        }.items()
    }
    assert boards == {"current": [new], "first": [old], "second": [new]}
    assert_problem(board(http, keys["ada"], first["id"], problem_version="none"), 404)
    current = page(http, f"/problems/{first['id']}", headers=keys["ada"])
    assert new in current
    assert old not in current
    assert f"?version={first['version']}" in current
    earlier = page(http, f"/problems/{first['id']}?version={first['version']}", headers=keys["ada"])
    assert old in earlier
    assert "This is the earlier version" in earlier
    assert 'id="hand-in"' not in earlier
    was = http.get(f"{URL}/{first['id']}", params={"version": first["version"]}, headers=keys["ada"]).json()
    assert (was["version"], was["tolerances"]["float32"]["atol"]) == (first["version"], 1e-3)


def test_a_private_problem_is_told_to_others_on_no_route(
    http: httpx.Client, services: Services, keys: Keyring, seeds: Seeds
) -> None:
    record = create(http, keys["ada"], **FIELDS)
    vetted(services, record)
    submission = graded(http, services, seeds, keys["ada"], record)
    header = {"visibility": "private", "name": SECRET, "defaults": {"problem": record["id"]}}
    lines = "".join(json.dumps(each) + "\n" for each in ({"batch": header}, {"code": CODE}))
    batch = http.post("/api/v1/batches", content=lines, headers={**LINES["headers"], **keys["ada"]}).json()
    assert (batch["items"], batch["errors_total"]) == (1, 0), batch
    http.delete(batch["links"]["self"], headers=keys["ada"])
    waiting = submit(http, keys["ada"], record["id"], code=CODE + "2").json()
    assert waiting["visibility"] == "private"
    ids = {"submission_id": submission, "batch_id": batch["id"], "problem_id": record["id"]}
    seen = set()
    for name, route in ROUTES.items():
        for client in (None, "bob", "plain"):
            answer = ask(http, name, keys[client], **ids)
            assert SECRET not in answer.text, (name, client)
            if "{problem_id}" not in name:
                assert record["id"] not in answer.text, (name, client)
                continue
            unknown = ask(http, name, keys[client], **{**ids, "problem_id": "prob_none"})
            assert answer.status_code == unknown.status_code, (name, client)
            assert answer.text.count(record["id"]) <= unknown.text.count("prob_none"), (name, client)
            if route.scope is not ADMIN and client == "bob":
                assert answer.status_code in (404, 422), (name, answer.text)
        if name.startswith("GET") and record["id"] in ask(http, name, keys["ada"], **ids).text:
            seen.add(name)
    # Its owner is told on these routes, so the loop above looks at the right answers.
    assert seen >= {
        "GET /",
        "GET /problems/{problem_id}",
        "GET /api/v1/problems",
        "GET /api/v1/problems/{problem_id}",
        "GET /submissions/{submission_id}",
        "GET /api/v1/submissions",
        "GET /batches/{batch_id}",
    }
    for params in ({}, {"problem_version": record["version"]}, {"format": "csv"}):
        assert board(http, keys["ada"], record["id"], **params).status_code == 200
        for client in (None, "bob"):
            answer = board(http, keys[client], record["id"], **params)
            unknown = board(http, keys[client], "prob_none", **params)
            assert (answer.status_code, unknown.status_code) == (404, 404)
            assert (
                answer.text.replace(record["id"], "prob_none").partition("request_id")[0]
                == (unknown.text.partition("request_id")[0])
            )
    for client in ("bob", "plain"):
        assert_problem(submit(http, keys[client], record["id"]), 404)
        assert SECRET not in page(http, "/overall?problems=all", headers=keys[client])
    assert SECRET not in page(http, "/overall")
    assert SECRET in page(http, "/overall", headers=keys["ada"])
    assert SECRET in http.get(URL, headers=keys["root"]).text


def test_a_private_problem_has_a_board_for_its_owner(
    http: httpx.Client, services: Services, keys: Keyring, seeds: Seeds
) -> None:
    record = create(http, keys["ada"], **FIELDS)
    submission = graded(http, services, seeds, keys["ada"], record)
    assert board(http, keys["ada"], record["id"]).json()["refusal"] is not None
    vetted(services, record)
    assert [each["submission"] for each in board(http, keys["ada"], record["id"]).json()["entries"]] == [submission]
    # What an administrator hands in is not its owner's, and is on no board.
    theirs = graded(http, services, seeds, keys["root"], record, code=CODE + "root")
    assert [each["submission"] for each in board(http, keys["root"], record["id"]).json()["entries"]] == [submission]
    assert theirs not in page(http, f"/problems/{record['id']}", headers=keys["ada"])
    html = page(http, f"/problems/{record['id']}", headers=keys["ada"])
    assert submission in html
    assert "<span>private</span>" in html
    assert '<option value="private" selected>' in html
    withdrawn = http.put(
        f"/api/v1/submissions/{submission}/withdrawal", json={"reason": "a test"}, headers=keys["root"]
    )
    assert withdrawn.status_code == 200
    assert board(http, keys["ada"], record["id"]).json()["entries"] == []
    http.delete(f"/api/v1/submissions/{submission}/withdrawal", headers=keys["root"])
    assert [each["submission"] for each in board(http, keys["ada"], record["id"]).json()["entries"]] == [submission]


def test_submissions_to_a_private_problem_are_private(
    http: httpx.Client, services: Services, keys: Keyring, seeds: Seeds
) -> None:
    record = create(http, keys["ada"], **FIELDS)
    for visibility in ("public", "source_hidden"):
        refused = assert_problem(submit(http, keys["ada"], record["id"], visibility=visibility), 422)
        assert {error["field"] for error in refused["errors"]} == {"visibility"}
    line = {"problem": record["id"], "code": CODE}
    for header in ({"visibility": "public"}, {"visibility": "source_hidden"}, {"defaults": {"visibility": "public"}}):
        body = {**header, "submissions": [line]}
        batch = http.post("/api/v1/batches", json=body, headers=keys["ada"]).json()
        assert (batch["items"], batch["errors_total"]) == (0, 1)
        assert "must be its submissions and their batch" in batch["errors"][0]["message"]
    submission = submit(http, keys["ada"], record["id"]).json()["id"]
    published = http.patch(f"/api/v1/submissions/{submission}", json={"visibility": "public"}, headers=keys["ada"])
    assert "is private, and so are all submissions to it" in str(assert_problem(published, 409)["detail"])


@pytest.mark.parametrize("by_default", [False, True])
def test_a_batch_with_a_line_to_a_private_problem_is_private_unless_it_says_otherwise(
    http: httpx.Client, keys: Keyring, by_default: bool
) -> None:
    record = create(http, keys["ada"])
    own = {} if by_default else {"problem": record["id"]}
    public = {"problem": "relu", "code": "class ModelNew: ...\n# seen\n"}
    lines = [public, {**own, "code": CODE}, {**public, "code": CODE, "visibility": "private"}]
    body = {"submissions": lines, "defaults": {"problem": record["id"]} if by_default else {}}
    batch = http.post("/api/v1/batches", json=body, headers=keys["ada"]).json()
    assert (batch["items"], batch["visibility"]) == (2, "private")
    assert [error["line"] for error in batch["errors"]] == [3]
    assert http.get(batch["links"]["self"], headers=keys["bob"]).status_code == 404
    items = http.get("/api/v1/submissions", params={"batch": batch["id"]}, headers=keys["ada"]).json()["items"]
    assert {each["problem"]: each["visibility"] for each in items} == {"relu": "public", record["id"]: "private"}


def test_an_error_in_a_line_to_a_private_problem_is_told_to_no_other_client(http: httpx.Client, keys: Keyring) -> None:
    record = create(http, keys["ada"])
    line = {"problem": record["id"], "code": CODE, "size": "none"}
    batch = http.post("/api/v1/batches", json={"submissions": [line]}, headers=keys["ada"]).json()
    assert record["id"] in batch["errors"][0]["message"]
    assert http.get(batch["links"]["self"], headers=keys["bob"]).status_code == 404


def test_the_form_of_the_first_page_takes_a_private_problem_as_it_is(http: httpx.Client, keys: Keyring) -> None:
    record = create(http, keys["ada"])
    first = page(http, "/", headers=keys["ada"])
    select = first.partition('<select name="visibility">')[2].partition("</select>")[0]
    (selected,) = re.findall(r'<option value="(\w*)" selected>', select)
    for problem, visibility in ((record["id"], "private"), ("relu", "public")):
        form = {"problem": problem, "text": CODE, "visibility": selected}
        answer = http.post("/submissions", data=form, headers={**keys["ada"], "Accept": "text/html"})
        assert answer.status_code == 303, answer.text
        made = http.get(f"/api/v1{answer.headers['location']}", headers=keys["ada"]).json()
        assert (made["problem"], made["visibility"]) == (problem, visibility)


def test_an_administrator_publishes_a_problem_and_nothing_else(
    http: httpx.Client, services: Services, keys: Keyring, seeds: Seeds
) -> None:
    record = create(http, keys["ada"], **FIELDS)
    vetted(services, record)
    before = graded(http, services, seeds, keys["ada"], record)
    own = f"{URL}/{record['id']}"
    body = {"visibility": "public", "version": record["version"]}
    assert_problem(http.patch(own, json=body, headers=keys["ada"]), 403)
    assert_problem(http.patch(own, json={**body, "visibility": "private"}, headers=keys["root"]), 422)
    assert_problem(http.patch(own, json={"visibility": "public"}, headers=keys["root"]), 422)
    assert http.patch(own, json=body, headers=keys["root"]).json()["visibility"] == "public"
    keys.make("agent", own_only=True)
    for client in (None, "bob", "plain", "agent"):
        shown = http.get(own, headers=keys[client]).json()
        assert (shown["title"], shown["visibility"], shown["owner"]) == (FIELDS["title"], "public", None)
        assert record["id"] in page(http, "/", headers=keys[client])
        # The submission is as private as it was.
        assert board(http, keys[client], record["id"]).json()["entries"] == []
        assert before not in page(http, f"/problems/{record['id']}", headers=keys[client])
        assert http.get(f"/api/v1/submissions/{before}", headers=keys[client]).status_code == 404
    theirs = graded(http, services, seeds, keys["bob"], record, code=CODE + "bob")
    assert [each["submission"] for each in board(http, {}, record["id"]).json()["entries"]] == [theirs]
    published = http.patch(f"/api/v1/submissions/{before}", json={"visibility": "public"}, headers=keys["ada"])
    assert published.status_code == 200
    assert {each["submission"] for each in board(http, {}, record["id"]).json()["entries"]} == {theirs, before}
    # Others rely on it now, so its owner does not change it alone.
    change = {"source": SOURCE + "# 2\n"}
    for client, status in (("bob", 403), ("ada", 403), ("root", 200)):
        assert http.put(own, json=change, headers=keys[client]).status_code == status
    assert_problem(http.delete(own, headers=keys["ada"]), 403)
    with services.readers() as session:
        actions = [row.action for row in session.scalars(select(AuditEvent).order_by(AuditEvent.id))]
    assert [each for each in actions if each.startswith("problem.")] == [
        "problem.created",
        "problem.published",
        "problem.updated",
    ]


def test_what_an_administrator_has_not_read_is_not_published(http: httpx.Client, keys: Keyring) -> None:
    record = create(http, keys["ada"])
    own = f"{URL}/{record['id']}"
    changed = http.put(own, json={"source": f"{SOURCE}# unseen\n"}, headers=keys["ada"]).json()
    body = {"visibility": "public", "version": record["version"]}
    refused = assert_problem(http.patch(own, json=body, headers=keys["root"]), 409)
    assert changed["version"] in str(refused["detail"])
    assert http.get(own, headers=keys["ada"]).json()["visibility"] == "private"
    body["version"] = changed["version"]
    assert http.patch(own, json=body, headers=keys["root"]).json()["visibility"] == "public"


def test_a_source_is_read_before_the_database_is_locked(
    http: httpx.Client, services: Services, keys: Keyring, monkeypatch: pytest.MonkeyPatch
) -> None:
    record, other = create(http, keys["ada"]), create(http, keys["bob"])
    parse = problem_changes.parse_created
    meanwhile = []

    def parsed(*given: Any) -> Problem:
        with services.sessions.begin() as session:  # SQLite has one writer at a time
            withdraw_problem(session, session.get_one(CreatedProblem, other["id"]), "bob")
        meanwhile.append(given[0])
        return parse(*given)

    monkeypatch.setattr(problem_changes, "parse_created", parsed)
    body = {"source": f"{SOURCE}# changed\n"}
    # Others cost nothing: their bodies are not read.
    for client in ("bob", "plain"):
        assert http.put(f"{URL}/{record['id']}", json=body, headers=keys[client]).status_code in (403, 404)
    assert meanwhile == []
    # What happened meanwhile counts.
    assert_problem(http.put(f"{URL}/{other['id']}", json=body, headers=keys["bob"]), 404)
    assert meanwhile == [other["id"]]


def test_a_withdrawn_problem_is_on_no_list_and_its_submissions_stay(
    http: httpx.Client, services: Services, keys: Keyring, seeds: Seeds
) -> None:
    record = create(http, keys["ada"], **FIELDS)
    waiting = submit(http, keys["ada"], record["id"]).json()
    own = f"{URL}/{record['id']}"
    assert_problem(http.delete(own, headers=keys["bob"]), 404)
    assert http.delete(own, headers=keys["ada"]).status_code == 204
    for client in ("ada", "root"):
        withdrawn = http.get(own, headers=keys[client]).json()
        assert withdrawn.pop("withdrawn_at") is not None
        assert withdrawn == {name: value for name, value in record.items() if name != "withdrawn_at"}
        assert record["id"] not in http.get(URL, headers=keys[client]).text
    for client in (None, "bob", "plain"):
        assert_problem(http.get(own, headers=keys[client]), 404)
    assert_problem(http.delete(own, headers=keys["ada"]), 404)
    assert_problem(http.put(own, json={"source": SOURCE}, headers=keys["ada"]), 404)
    assert_problem(submit(http, keys["ada"], record["id"]), 404)
    assert record["id"] not in http.get(URL, headers=keys["ada"]).text
    seeds.evaluate(waiting["id"], passed(problem_of(services, record)))
    after = http.get(f"/api/v1/submissions/{waiting['id']}", headers=keys["ada"]).json()
    assert (after["verdict"], after["problem_version"]) == ("passed", record["version"])
    assert http.get(after["links"]["reference"], headers=keys["ada"]).text == SOURCE
    assert page(http, f"/submissions/{waiting['id']}", headers=keys["ada"])
    assert http.get(f"/api/v1/submissions/{waiting['id']}", headers=keys["bob"]).status_code == 404


def test_an_administrator_restores_a_withdrawn_problem(
    http: httpx.Client, services: Services, keys: Keyring, seeds: Seeds
) -> None:
    record = create(http, keys["ada"], **FIELDS)
    vetted(services, record)
    own, withdrawal = f"{URL}/{record['id']}", f"{URL}/{record['id']}/withdrawal"
    ranked = graded(http, services, seeds, keys["ada"], record)
    before = http.get(own, headers=keys["ada"]).json()
    assert_problem(http.delete(withdrawal, headers=keys["root"]), 404)
    http.delete(own, headers=keys["ada"])
    assert_problem(http.delete(withdrawal, headers=keys["ada"]), 403)
    assert http.delete(withdrawal, headers=keys["root"]).status_code == 200
    assert http.get(own, headers=keys["ada"]).json() == before
    assert before["withdrawn_at"] is None
    assert [each["submission"] for each in board(http, keys["ada"], record["id"]).json()["entries"]] == [ranked]
    assert submit(http, keys["ada"], record["id"], code=CODE + "again").status_code == 202
    assert_problem(http.get(own, headers=keys["bob"]), 404)


def test_what_is_submitted_while_a_problem_is_withdrawn_is_refused(
    http: httpx.Client, services: Services, keys: Keyring
) -> None:
    record = create(http, keys["ada"])
    with services.readers() as session:
        before = services.catalogue(session, Viewer("ada"))
    http.delete(f"{URL}/{record['id']}", headers=keys["ada"])
    services.catalogue = lambda *_given: before  # type: ignore[method-assign] # as it was a moment ago
    refused = submit(http, keys["ada"], record["id"], size="full")
    assert "has just been withdrawn" in str(assert_problem(refused, 404)["detail"])
    lines = [{"problem": record["id"], "code": CODE}, {"problem": "relu", "code": CODE}]
    batch = http.post("/api/v1/batches", json={"submissions": lines}, headers=keys["ada"]).json()
    assert (batch["items"], [error["line"] for error in batch["errors"]]) == (1, [1])
    assert "has just been withdrawn" in batch["errors"][0]["message"]


def test_a_start_of_the_service_leaves_created_problems_as_they_are(
    http: httpx.Client, services: Services, keys: Keyring, problems: dict[str, Problem]
) -> None:
    record = create(http, keys["ada"])
    with services.sessions.begin() as session:
        sync_problems(session, problems)
    assert http.get(f"{URL}/{record['id']}", headers=keys["ada"]).json() == record


def test_without_keys_a_problem_is_everybodys(tmp_path: Path, services: Services, http: httpx.Client) -> None:
    services.settings = services.settings.model_copy(update={"auth": "open"})
    record = create(http, {})
    assert (record["visibility"], record["owner"]) == ("public", None)
    assert submit(http, {}, record["id"], size="full").json()["visibility"] == "public"
    assert http.delete(f"{URL}/{record['id']}").status_code == 204


def test_the_form_takes_references_from_keys_that_may_bring_them(http: httpx.Client, keys: Keyring) -> None:
    for client, may in ((None, False), ("plain", False), ("ada", True)):
        assert ('name="reference"' in page(http, "/", headers=keys[client])) is may, client
    form = {"problem": "relu", "text": CODE, "reference": SOURCE}
    assert http.post("/submissions", data=form, headers=keys["plain"]).status_code == 403
    assert http.post("/submissions", data=form, headers=keys["ada"]).status_code == 303


def test_the_form_of_a_private_problem_hands_in_privately(http: httpx.Client, keys: Keyring) -> None:
    record = create(http, keys["ada"], **FIELDS)
    form = {"problem": record["id"], "text": CODE}
    for visibility, status in (("public", 422), ("private", 303), ("", 303)):
        answer = http.post("/submissions", data={**form, "visibility": visibility}, headers=keys["ada"])
        assert answer.status_code == status, answer.text
        if status == 303:
            submission = http.get("/api/v1" + answer.headers["location"], headers=keys["ada"]).json()
            assert submission["visibility"] == "private"
