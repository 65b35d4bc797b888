"""What one client keeps from the others: every route, those of pages included, is asked for it."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx
import pyarrow.parquet
import pytest
from fastapi import FastAPI
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

from api.labels import VERDICTS, times
from api.services.auth import Needs
from api.services.container import Services
from evaluator.evaluation import Verdict
from evaluator.problems.problem import Problem
from kerneljudge.terms.findings import Tool
from runtime.settings import Settings
from storage.access.keys import Scope
from storage.access.visibility import Visibility
from storage.queue.workers import heartbeat
from tests.api.conftest import PROBLEMS, assert_problem
from tests.api.inmemory import AppTransport
from tests.api.keyring import Keyring
from tests.api.seeds import Seeds, failed, passed

SECRET = "zq7moonlight"
"""Stands in everything that is private or hidden."""
SOURCE = f"class ModelNew: ...\n# {SECRET}\n"

READ, SUBMIT, REFERENCES, ADMIN, NO_SCOPE = Scope.READ, Scope.SUBMIT, Scope.REFERENCES, Scope.ADMIN, None


@dataclass(frozen=True)
class Route:
    """Which scope a route needs, and with what else it is asked. ``owner`` is what its owner is answered."""

    scope: Scope | None
    owner: int = 200
    options: dict[str, Any] = field(default_factory=dict)


FORM = {"headers": {"Content-Type": "application/x-www-form-urlencoded"}}
PUBLISH, WITHDRAW = {"json": {"visibility": "private"}}, {"json": {"reason": "a test"}}
CODE = {"json": {"problem": "relu", "code": "class ModelNew: ...\n"}}
REFERENCE = {"json": {"source": "import torch\n"}}
BOARD = {"problem": "relu", "device": "cpu", "limit": "500"}
LIMITS = {"json": {"requests_per_min": 0}}
NEW_KEY = {"json": {"client": "eve", "scopes": ["read"]}}
LINES = {"content": json.dumps(CODE["json"]), "headers": {"Content-Type": "application/x-ndjson"}}

ROUTES = {
    "GET /": Route(READ),
    "GET /overall": Route(READ),
    "GET /workers": Route(READ),
    "GET /docs": Route(NO_SCOPE),
    "GET /method": Route(NO_SCOPE),
    "GET /sign-in": Route(NO_SCOPE),
    "POST /sign-in": Route(NO_SCOPE, 401, {**FORM, "content": "key=kj_none"}),
    "POST /sign-out": Route(NO_SCOPE, 303, FORM),
    "GET /submissions": Route(READ),
    "POST /submissions": Route(SUBMIT, 422, {**FORM, "content": "problem=relu&text="}),
    "GET /submissions/{submission_id}": Route(READ),
    "GET /problems/{problem_id}": Route(READ),
    "GET /batches": Route(READ),
    "GET /batches/{batch_id}": Route(READ),
    "GET /batches/{batch_id}/comparison": Route(READ),
    "GET /healthz": Route(NO_SCOPE),
    "GET /readyz": Route(NO_SCOPE),
    "GET /metrics": Route(READ),
    "GET /api/v1/workers": Route(READ),
    "GET /api/v1/problems": Route(READ),
    "GET /api/v1/problems/{problem_id}": Route(READ),
    "POST /api/v1/problems": Route(REFERENCES, 403, REFERENCE),
    "PUT /api/v1/problems/{problem_id}": Route(REFERENCES, 403, REFERENCE),
    "PATCH /api/v1/problems/{problem_id}": Route(ADMIN, 403, {"json": {"visibility": "public", "version": "v"}}),
    "DELETE /api/v1/problems/{problem_id}": Route(REFERENCES, 403),
    "DELETE /api/v1/problems/{problem_id}/withdrawal": Route(ADMIN, 403),
    "GET /api/v1/leaderboard": Route(READ, 200, {"params": BOARD}),
    "POST /api/v1/submissions": Route(SUBMIT, 202, CODE),
    "GET /api/v1/submissions": Route(READ, 200, {"params": {"limit": 200}}),
    "GET /api/v1/submissions/{submission_id}": Route(READ),
    "GET /api/v1/submissions/{submission_id}/reference": Route(READ),
    "GET /api/v1/submissions/{submission_id}/source": Route(READ),
    "GET /api/v1/submissions/{submission_id}/log": Route(READ),
    "GET /api/v1/submissions/{submission_id}/samples": Route(READ),
    "GET /api/v1/submissions/{submission_id}/attempts": Route(READ),
    "GET /api/v1/submissions/{submission_id}/events": Route(READ),
    "GET /api/v1/submissions/{submission_id}/diagnosis": Route(READ),
    "POST /api/v1/submissions/{submission_id}/diagnosis": Route(SUBMIT, 202),
    "POST /api/v1/submissions/{submission_id}/retry": Route(SUBMIT, 409),
    "PATCH /api/v1/submissions/{submission_id}": Route(SUBMIT, 200, PUBLISH),
    "DELETE /api/v1/submissions/{submission_id}": Route(SUBMIT),
    "PUT /api/v1/submissions/{submission_id}/withdrawal": Route(ADMIN, 403, WITHDRAW),
    "DELETE /api/v1/submissions/{submission_id}/withdrawal": Route(ADMIN, 403),
    "POST /api/v1/batches": Route(SUBMIT, 202, LINES),
    "GET /api/v1/batches": Route(READ, 200, {"params": {"limit": 100}}),
    "GET /api/v1/batches/{batch_id}": Route(READ),
    "GET /api/v1/batches/{batch_id}/summary": Route(READ),
    "GET /api/v1/batches/{batch_id}/comparison": Route(READ, 404, {"params": {"other": "bat_none"}}),
    "GET /api/v1/batches/{batch_id}/results": Route(READ),
    "GET /api/v1/batches/{batch_id}/events": Route(READ),
    "DELETE /api/v1/batches/{batch_id}": Route(SUBMIT),
    "GET /api/v1/keys": Route(ADMIN, 403),
    "POST /api/v1/keys": Route(ADMIN, 403, NEW_KEY),
    "PATCH /api/v1/keys/{key_id}": Route(ADMIN, 403, LIMITS),
    "DELETE /api/v1/keys/{key_id}": Route(ADMIN, 403),
    "GET /api/v1/audit": Route(ADMIN, 403),
}
"""Every route with what was decided about it. A new one belongs in here, or the first test below fails."""


@pytest.fixture
def api_settings(tmp_path: Any) -> Settings:
    return Settings(data_dir=tmp_path / "data", problems_dir=PROBLEMS, port=0, auth="required")


@pytest.fixture
def keys(transport: AppTransport, services: Services) -> Keyring:
    keyring = Keyring(services.sessions)
    for client in ("ada", "bob"):
        keyring.make(client)
    keyring.make("root", [Scope.ADMIN])
    return keyring


@dataclass(frozen=True)
class Kept:
    """The ids of what ada keeps to herself."""

    submissions: list[str]
    batch: str


def needs_of(dependant: Dependant) -> list[Needs]:
    found = [dependant.call] if isinstance(dependant.call, Needs) else []
    return found + [each for child in dependant.dependencies for each in needs_of(child)]


def routes_below(routes: Iterable[Any]) -> Iterator[Any]:
    """Those of included routers as well."""
    for route in routes:
        router = getattr(route, "original_router", None)
        yield from [route] if router is None else routes_below(router.routes)


def test_every_route_has_a_decision_and_the_scope_that_was_decided(app: FastAPI) -> None:
    everything = list(routes_below(app.routes))
    ours = [route for route in everything if isinstance(route, APIRoute)]
    routes = {f"{method} {route.path}": route for route in ours for method in route.methods}
    assert set(routes) == set(ROUTES)
    for name, route in routes.items():
        (needed,) = needs_of(route.dependant)
        assert needed.scope == ROUTES[name].scope, name
    # Beside them there are only files and the document that they are described in.
    others = {route.path for route in everything if route not in ours}
    assert others == {"/static", "/openapi.json"}


def keep(http: httpx.Client, seeds: Seeds, problems: dict[str, Problem], visibility: Visibility) -> Kept:
    """Ada hands in one of everything."""
    relu = problems["relu"]
    owned: dict[str, Any] = {"owner": "ada", "visibility": visibility, "author": "ada"}
    quoting = {"details": {"gradient_max_abs": {SECRET: 0.0}}, "log": SECRET, "hints": (SECRET,), "notes": (SECRET,)}
    best = seeds.passed(source=SOURCE, **owned, metadata={SECRET: SECRET}, evaluation={"speedup": 99.0, **quoting})
    wrong = seeds.submit(source=SOURCE + "1", **owned)
    seeds.evaluate(wrong, failed(relu, Verdict.COMPILE_ERROR, f"error near {SECRET}", log=SECRET))
    waiting = seeds.submit(source=SOURCE + "2", **owned)
    built = seeds.claim_build(waiting)
    seeds.show(built, "building", SECRET, 0.5)
    faulted = seeds.submit(source=SOURCE + "3", **owned)
    seeds.fault(seeds.claim_build(faulted), f"the builder died at {SECRET}")
    seeds.diagnosing_worker()
    diagnosed = seeds.faulted(source=SOURCE + "4", **owned)
    seeds.diagnose(diagnosed, Tool.MEMCHECK, printed=SECRET, error=SECRET)
    seeds.worker("w", "build", "build", None)
    with seeds.sessions.begin() as session:
        heartbeat(session, "w", waiting)
    return Kept([best, wrong, waiting, faulted, diagnosed], "")


@pytest.fixture
def private(http: httpx.Client, seeds: Seeds, keys: Keyring, problems: dict[str, Problem]) -> Kept:
    """Ada's private things, with the word in all that can be typed."""
    kept = keep(http, seeds, problems, Visibility.PRIVATE)
    header = {
        "name": SECRET,
        "visibility": "private",
        "defaults": {"problem": "relu", "author": SECRET, "label": SECRET, "metadata": {SECRET: SECRET}},
        "webhook": {"url": f"http://{SECRET}.example/", "secret": SECRET},
    }
    lines: list[Any] = [{"batch": header}, {"code": SOURCE}, {"code": SECRET}, {"problem": SECRET, "code": SOURCE}]
    body = "".join(json.dumps(line) + "\n" for line in lines)
    answer = http.post("/api/v1/batches", content=body, headers={**LINES["headers"], **keys["ada"]})
    assert (answer.status_code, answer.json()["items"], answer.json()["errors_total"]) == (202, 2, 1)
    page = http.get("/api/v1/submissions", params={"author": SECRET}, headers=keys["ada"]).json()
    ids = [each["id"] for each in page["items"]]
    assert len(ids) == 2
    cancelled = http.delete(answer.json()["links"]["self"], headers=keys["ada"])
    assert cancelled.json()["finished"] is not None
    return Kept([*kept.submissions, *ids], answer.json()["id"])


def ask(http: httpx.Client, name: str, headers: dict[str, str], **ids: str) -> httpx.Response:
    method, _, path = name.partition(" ")
    options = dict(ROUTES[name].options)
    given = {**options.pop("headers", {}), "Accept": "text/html, */*", **headers}
    places = {"submission_id": "none", "batch_id": "none", "problem_id": "relu", "key_id": "none", **ids}
    return http.request(method, path.format(**places), headers=given, **options)


@pytest.mark.parametrize("client", [None, "bob"], ids=["nobody", "another"])
def test_nothing_private_is_told_to_others(
    http: httpx.Client, keys: Keyring, private: Kept, client: str | None
) -> None:
    for name, route in ROUTES.items():
        for submission_id in private.submissions if "{submission_id}" in name else [""]:
            answer = ask(http, name, keys[client], submission_id=submission_id, batch_id=private.batch)
            assert SECRET not in answer.text, name
            if "{submission_id}" not in name and "{batch_id}" not in name:
                ids = {*private.submissions, private.batch}
                assert not [each for each in ids if each in answer.text], name
            else:
                needs_key = route.scope in (SUBMIT, ADMIN) and client is None
                expected = 401 if needs_key else 403 if route.scope is ADMIN else 404
                assert answer.status_code == expected, (name, answer.text)
                unknown = ask(http, name, keys[client], submission_id="sub_none", batch_id="bat_none")
                assert unknown.status_code == answer.status_code, name


def test_its_owner_is_told(http: httpx.Client, keys: Keyring, private: Kept) -> None:
    for name, route in ROUTES.items():
        which = private.submissions[4 if name.endswith("/diagnosis") else 0]
        answer = ask(http, name, keys["ada"], submission_id=which, batch_id=private.batch, key_id=keys.ids["ada"])
        assert answer.status_code == route.owner, (name, answer.text)


def test_what_shows_many_things_shows_a_client_his_own(http: httpx.Client, keys: Keyring, private: Kept) -> None:
    for path in ("/api/v1/submissions?limit=200", "/submissions"):
        text = http.get(path, headers=keys["ada"]).text
        assert all(each in text for each in private.submissions)
    for client in ("ada", "root"):
        workers = http.get("/api/v1/workers", headers=keys[client]).json()["items"]
        assert private.submissions[2] in [worker["current_submission"] for worker in workers]
        assert private.batch in http.get("/batches", headers=keys[client]).text


def test_a_private_batch_is_no_side_of_a_comparison_for_others(
    http: httpx.Client, keys: Keyring, private: Kept, problems: dict[str, Problem]
) -> None:
    own = http.post("/api/v1/batches", json={"submissions": [CODE["json"]]}, headers=keys["bob"]).json()["id"]
    for path in ("/api/v1/batches/{}/comparison", "/batches/{}/comparison"):
        for client, status in ((None, 404), ("bob", 404), ("ada", 200)):
            answer = http.get(path.format(own), params={"other": private.batch}, headers=keys[client])
            unknown = http.get(path.format(own), params={"other": "bat_none"}, headers=keys[client])
            assert answer.status_code == status, (path, client, answer.text)
            assert unknown.status_code == 404
            assert (SECRET in answer.text) == (status == 200)
    # Nor is it offered to them.
    assert private.batch not in http.get(f"/batches/{own}/comparison", headers=keys["bob"]).text
    assert private.batch in http.get(f"/batches/{own}/comparison", headers=keys["ada"]).text


@dataclass(frozen=True)
class Family:
    """Ada's private submission between two public ones, and her public batch, whose lines have private parents."""

    oldest: str
    middle: str
    youngest: str
    batch: str


@pytest.fixture
def family(http: httpx.Client, seeds: Seeds, keys: Keyring, problems: dict[str, Problem]) -> Family:
    """Each derived from the one before."""
    oldest = seeds.passed(owner="ada")
    middle = seeds.passed(owner="ada", visibility=Visibility.PRIVATE, parent=oldest)
    youngest = seeds.passed(owner="ada", parent=middle)
    line = {"problem": "relu", "device": "cpu", "code": SOURCE, "parent": middle}
    batch = http.post("/api/v1/batches", json={"submissions": [line, line]}, headers=keys["ada"]).json()
    (waiting,) = http.get("/api/v1/submissions", params={"status": "queued"}).json()["items"]
    seeds.evaluate(waiting["id"], passed(problems["relu"]))
    return Family(oldest, middle, youngest, batch["id"])


def test_a_private_parent_or_child_is_shown_on_no_route(http: httpx.Client, keys: Keyring, family: Family) -> None:
    told = set()
    for name, route in ROUTES.items():
        if route.scope in (READ, NO_SCOPE):
            for submission_id in (family.oldest, family.youngest) if "{submission_id}" in name else [""]:
                ids = {"submission_id": submission_id, "batch_id": family.batch}
                for client in (None, "bob"):
                    assert family.middle not in ask(http, name, keys[client], **ids).text, (name, submission_id)
                if family.middle in ask(http, name, keys["ada"], **ids).text:
                    told.add(name)
    # Its owner is told on these routes, so the test above looks at the right answers.
    assert told >= {
        "GET /submissions/{submission_id}",
        "GET /api/v1/submissions",
        "GET /api/v1/submissions/{submission_id}",
        "GET /api/v1/submissions/{submission_id}/events",
        "GET /api/v1/batches/{batch_id}/results",
    }


@pytest.mark.parametrize("format_", ["json", "csv", "parquet"])
def test_a_private_parent_is_in_no_export(http: httpx.Client, keys: Keyring, family: Family, format_: str) -> None:
    def export(client: str | None) -> bytes:
        params = {"format": format_}
        return http.get(f"/api/v1/batches/{family.batch}/results", params=params, headers=keys[client]).content

    assert family.middle.encode() not in export(None) + export("bob")
    assert family.middle.encode() in export("ada")


def test_a_private_parent_has_no_children_for_others(http: httpx.Client, keys: Keyring, family: Family) -> None:
    for path in ("/api/v1/submissions", "/submissions"):
        for client, count in ((None, 0), ("bob", 0), ("ada", 2), ("root", 2)):
            text = http.get(path, params={"parent": family.middle}, headers=keys[client]).text
            assert (family.youngest in text) == (count > 0), (path, client)
            if path.startswith("/api"):
                assert len(json.loads(text)["items"]) == count
    children = http.get("/api/v1/submissions", params={"parent": family.oldest}, headers=keys["bob"])
    assert children.json()["items"] == []


def test_a_private_parent_is_refused_as_one_that_does_not_exist(
    http: httpx.Client, keys: Keyring, family: Family
) -> None:
    def refusals(client: str, parent: str) -> list[str]:
        body = {**CODE["json"], "parent": parent}
        single = http.post("/api/v1/submissions", json=body, headers=keys[client])
        batch = http.post("/api/v1/batches", json={"submissions": [body]}, headers=keys[client]).json()
        default = {"defaults": {"parent": parent}, "submissions": [CODE["json"]]}
        by_default = http.post("/api/v1/batches", json=default, headers=keys[client]).json()
        told = [single.json().get("detail", ""), *(str(each["errors"]) for each in (batch, by_default))]
        return [each.replace(parent, "?") for each in told]

    assert refusals("bob", family.middle) == refusals("bob", "sub_none")
    assert refusals("ada", family.middle) == ["", "[]", "[]"]


def test_a_line_of_a_private_batch_makes_nothing_a_child_for_others(
    http: httpx.Client, keys: Keyring, family: Family
) -> None:
    line = {"problem": "relu", "code": SOURCE, "visibility": "public", "parent": family.oldest}
    public = {**line, "parent": None}
    http.post("/api/v1/batches", json={"submissions": [public]}, headers=keys["ada"]).raise_for_status()
    body = {"visibility": "private", "submissions": [line]}
    assert http.post("/api/v1/batches", json=body, headers=keys["ada"]).json()["shared"] == 1
    for client, count in (("bob", 0), ("ada", 2)):
        found = http.get("/api/v1/submissions", params={"parent": family.oldest}, headers=keys[client]).json()
        assert len(found["items"]) == count


def test_private_submissions_are_ranked_and_counted_nowhere(
    http: httpx.Client, keys: Keyring, private: Kept, seeds: Seeds
) -> None:
    seeds.passed(author="bob", evaluation={"speedup": 1.25})
    for client in ("ada", "root", None):
        board = http.get("/api/v1/leaderboard", params=BOARD, headers=keys[client]).json()
        assert [entry["speedup"] for entry in board["entries"]] == [1.25]
        file = http.get("/api/v1/leaderboard", params={**BOARD, "format": "csv"}, headers=keys[client]).text
        assert [row["speedup"] for row in csv.DictReader(io.StringIO(file, newline=""))] == ["1.25"]
        metrics = http.get("/metrics", headers=keys[client]).text
        assert 'kerneljudge_verdicts_total{device="cpu",verdict="passed"} 1.0' in metrics
        assert 'kerneljudge_verdicts_total{device="cpu",verdict="compile_error"} 0.0' in metrics
        page = http.get("/problems/relu", headers=keys[client]).text
        ranked, _, _ = page.partition('id="rules"')
        assert times(1.25) in ranked
        assert times(99.0) not in ranked
        assert VERDICTS[Verdict.COMPILE_ERROR] not in ranked


def test_of_a_hidden_source_others_see_verdict_and_place_alone(
    http: httpx.Client, keys: Keyring, seeds: Seeds, problems: dict[str, Problem]
) -> None:
    kept = keep(http, seeds, problems, Visibility.SOURCE_HIDDEN)
    best = kept.submissions[0]
    for client in (None, "bob"):
        board = http.get("/api/v1/leaderboard", params=BOARD, headers=keys[client]).json()
        assert board["entries"][0]["submission"] == best
        record = http.get(f"/api/v1/submissions/{best}", headers=keys[client]).json()
        assert (record["verdict"], record["speedup"], record["source_shown"]) == ("passed", 99.0, False)
        for name, route in ROUTES.items():
            if route.scope in (READ, NO_SCOPE):
                for submission_id in kept.submissions if "{submission_id}" in name else [""]:
                    if name.endswith("/events") and submission_id in kept.submissions[2:4]:
                        continue  # not over: it would go on
                    answer = ask(http, name, keys[client], submission_id=submission_id)
                    assert SECRET not in answer.text, (name, submission_id)
        for part in ("source", "log", "diagnosis"):
            assert_problem(http.get(f"/api/v1/submissions/{best}/{part}", headers=keys[client]), 403)
    assert http.get(f"/api/v1/submissions/{best}/source", headers=keys["ada"]).text == SOURCE
    assert SECRET in http.get(f"/submissions/{best}", headers=keys["root"]).text


def test_nobody_elses_submission_can_be_changed(http: httpx.Client, keys: Keyring, seeds: Seeds) -> None:
    seen = seeds.passed(owner="ada", author="ada")
    for name, route in ROUTES.items():
        if "{submission_id}" in name and route.scope is SUBMIT:
            assert_problem(ask(http, name, keys["bob"], submission_id=seen), 403)
    waiting = seeds.submit(owner="ada")
    assert http.delete(f"/api/v1/submissions/{waiting}", headers=keys["bob"]).status_code == 403
    assert http.delete(f"/api/v1/submissions/{waiting}", headers=keys["root"]).json()["status"] == "cancelled"


def test_an_author_publishes_step_by_step(http: httpx.Client, keys: Keyring, seeds: Seeds) -> None:
    own = seeds.passed(owner="ada", author="ada", visibility=Visibility.PRIVATE, source=SOURCE)
    path = f"/api/v1/submissions/{own}"

    def publish(visibility: str) -> httpx.Response:
        return http.patch(path, json={"visibility": visibility}, headers=keys["ada"])

    def ranked() -> list[str]:
        board = http.get("/api/v1/leaderboard", params=BOARD).json()
        return [entry["submission"] for entry in board["entries"]]

    assert (http.get(path).status_code, ranked()) == (404, [])
    assert publish("source_hidden").json()["visibility"] == "source_hidden"
    assert (http.get(path).json()["source_shown"], ranked()) == (False, [own])
    assert publish("public").status_code == 200
    assert http.get(f"{path}/source").text == SOURCE
    assert_problem(publish("private"), 409)
    events = http.get("/api/v1/audit", headers=keys["root"]).json()["items"]
    published = [event for event in events if event["action"] == "submission.published"]
    assert [(event["actor"], event["details"]["after"]) for event in published] == [
        ("ada", "public"),
        ("ada", "source_hidden"),
    ]


def test_the_same_source_or_key_tells_nothing_of_anothers(http: httpx.Client, keys: Keyring) -> None:
    body = {"problem": "relu", "code": SOURCE, "visibility": "private"}
    ids = []
    for client in ("ada", "bob"):
        headers = {**keys[client], "Idempotency-Key": "the same"}
        answer = http.post("/api/v1/submissions", json=body, headers=headers)
        again = http.post("/api/v1/submissions", json=body, headers=headers)
        assert "idempotency-replayed" not in answer.headers
        assert again.headers["idempotency-replayed"] == "true"
        ids.append(answer.json()["id"])
        assert again.json()["id"] == ids[-1]
    assert len(set(ids)) == 2


@pytest.mark.parametrize("hidden", ["private", "source_hidden"])
def test_a_line_that_says_nothing_of_it_is_what_its_batch_is(http: httpx.Client, keys: Keyring, hidden: str) -> None:
    lines = [{"problem": "relu", "code": SOURCE, "visibility": None, "label": None}]
    batch = http.post("/api/v1/batches", json={"visibility": hidden, "submissions": lines}, headers=keys["ada"]).json()
    assert batch["errors"] == []
    (own,) = http.get("/api/v1/submissions", headers=keys["ada"]).json()["items"]
    assert own["visibility"] == hidden


@pytest.mark.parametrize("hidden", ["private", "source_hidden"])
def test_lines_of_batches_share_nothing_that_is_not_public(http: httpx.Client, keys: Keyring, hidden: str) -> None:
    def batch(client: str, visibility: str) -> int:
        body = {"visibility": visibility, "submissions": [{"problem": "relu", "code": SOURCE}]}
        headers = {**keys[client], "Idempotency-Key": "the same"} if visibility == hidden else keys[client]
        shared: int = http.post("/api/v1/batches", json=body, headers=headers).json()["shared"]
        return shared

    assert batch("ada", hidden) == 0
    assert batch("bob", hidden) == 0
    assert batch("bob", "public") == 0
    assert batch("ada", "public") == 1
    line = {"visibility": hidden, "submissions": [{"problem": "relu", "code": SOURCE}]}
    assert http.post("/api/v1/batches", json=line, headers=keys["ada"]).json()["shared"] == 1


def test_a_line_is_not_private_in_a_batch_that_is_not(http: httpx.Client, keys: Keyring) -> None:
    line = {"problem": "relu", "code": SOURCE, "visibility": "private"}
    record = http.post("/api/v1/batches", json={"submissions": [line]}, headers=keys["ada"]).json()
    assert (record["items"], record["errors"][0]["message"]) == (
        0,
        "visibility: a line cannot be private in a batch that is public",
    )


def test_what_somebody_elses_batch_waits_for_is_not_cancelled(http: httpx.Client, keys: Keyring) -> None:
    body = {"submissions": [{"problem": "relu", "code": SOURCE}]}
    for client in ("ada", "bob"):
        http.post("/api/v1/batches", json=body, headers=keys[client]).raise_for_status()
    (shared,) = http.get("/api/v1/submissions").json()["items"]
    assert_problem(http.delete(shared["links"]["self"], headers=keys["ada"]), 409)
    assert http.delete(shared["links"]["self"], headers=keys["root"]).json()["status"] == "cancelled"


OTHERS = ("GET /", "GET /overall", "GET /problems/{problem_id}", "GET /api/v1/leaderboard")
"""Routes on which others' public results are shown to everybody else."""


@dataclass(frozen=True)
class Public:
    """The ids of ada's public things, with the word in all that can be typed."""

    submissions: list[str]
    batch: str


@pytest.fixture
def public(http: httpx.Client, seeds: Seeds, keys: Keyring, problems: dict[str, Problem]) -> Public:
    keys.make("agent", own_only=True)
    kept = keep(http, seeds, problems, Visibility.PUBLIC)
    named = seeds.passed(
        source=SOURCE + "5", owner="ada", author=SECRET, label=SECRET, evaluation={"speedup": 77.0, "log": SECRET}
    )
    header = {"name": SECRET, "defaults": {"problem": "relu", "author": SECRET, "label": SECRET}}
    lines: list[Any] = [{"batch": header}, {"code": SOURCE}, {"code": SECRET}]
    body = "".join(json.dumps(line) + "\n" for line in lines)
    batch = http.post("/api/v1/batches", content=body, headers={**LINES["headers"], **keys["ada"]}).json()
    # Over, so that no stream of events goes on.
    http.delete(batch["links"]["self"], headers=keys["ada"]).raise_for_status()
    page = http.get("/api/v1/submissions", params={"author": SECRET}, headers=keys["ada"]).json()
    return Public([*kept.submissions, named, *(each["id"] for each in page["items"])], batch["id"])


def test_a_key_for_its_own_alone_is_told_nothing_of_others(http: httpx.Client, keys: Keyring, public: Public) -> None:
    told = set()
    for name, route in ROUTES.items():
        for submission_id in public.submissions if "{submission_id}" in name else [""]:
            ids = {"submission_id": submission_id, "batch_id": public.batch}
            answer = ask(http, name, keys["agent"], **ids)
            assert SECRET not in answer.text, name
            assert times(99.0) not in answer.text, name
            assert '"speedup":99.0' not in answer.text, name
            if "{submission_id}" in name or "{batch_id}" in name:
                assert answer.status_code == (403 if route.scope is ADMIN else 404), (name, answer.text)
                unknown = ask(http, name, keys["agent"], submission_id="sub_none", batch_id="bat_none")
                assert unknown.status_code == answer.status_code, name
                continue
            assert not [each for each in (*public.submissions, public.batch) if each in answer.text], name
            assert answer.status_code == (403 if name == "GET /metrics" else route.owner), (name, answer.text)
            if route.scope is READ and SECRET in ask(http, name, keys["bob"]).text:
                told.add(name)
    # Another client is told on these routes, so the test above looks at the right answers.
    assert told >= {*OTHERS, "GET /submissions", "GET /batches", "GET /api/v1/submissions", "GET /api/v1/batches"}


@pytest.mark.parametrize("format_", ["json", "csv", "parquet"])
def test_a_board_for_its_own_alone_ranks_these_alone(
    http: httpx.Client, keys: Keyring, public: Public, seeds: Seeds, format_: str
) -> None:
    own = [
        seeds.passed(source=f"{SOURCE}# own {speedup}", owner="agent", author="agent", evaluation={"speedup": speedup})
        for speedup in (1.25, 1.5)
    ]

    def board(client: str, **changes: str) -> list[tuple[int, str]]:
        answer = http.get("/api/v1/leaderboard", params={**BOARD, **changes}, headers=keys[client])
        if changes.get("format", "json") == "json":
            return [(each["rank"], each["submission"]) for each in answer.json()["entries"]]
        if format_ == "csv":
            rows: list[Any] = list(csv.DictReader(io.StringIO(answer.text, newline="")))
        else:
            rows = pyarrow.parquet.read_table(io.BytesIO(answer.content)).to_pylist()
        return [(int(each["rank"]), each["submission"]) for each in rows]

    assert board("agent", format=format_) == [(1, own[1]), (2, own[0])]
    assert board("agent", format=format_, cursor="1") == [(2, own[0])]
    assert [place for place, _ in board("bob", format=format_)] == [1, 2, 3, 4]


def test_pages_of_boards_show_a_key_for_its_own_alone_these_alone(
    http: httpx.Client, keys: Keyring, public: Public, seeds: Seeds, problems: dict[str, Problem]
) -> None:
    empty = http.get("/problems/relu", headers=keys["agent"]).text.partition('id="rules"')[0]
    assert "ranked, the fastest" not in empty
    assert VERDICTS[Verdict.COMPILE_ERROR] not in empty
    own = seeds.passed(source=SOURCE + "# own", owner="agent", author="agent", evaluation={"speedup": 1.25})
    wrong = seeds.submit(source=SOURCE + "# own 2", owner="agent", visibility=Visibility.PRIVATE)
    seeds.evaluate(wrong, failed(problems["relu"], Verdict.WRONG_OUTPUT, "wrong"))
    page = http.get("/problems/relu", headers=keys["agent"]).text
    # Entries, the best, records, and counts of verdicts are its own.
    assert "1 ranked, the fastest at least" in page
    assert own in page
    assert VERDICTS[Verdict.WRONG_OUTPUT] in page
    assert VERDICTS[Verdict.COMPILE_ERROR] not in page.partition('id="rules"')[0]
    assert times(99.0) not in page
    for path in ("/", "/overall"):
        text = http.get(path, headers=keys["agent"]).text
        assert times(1.25) in text
        assert "<bdi>ada</bdi>" not in text
        assert "<bdi>ada</bdi>" in http.get(path, headers=keys["bob"]).text
    assert "3 ranked, the fastest at least" in http.get("/problems/relu", headers=keys["bob"]).text


def test_a_key_for_its_own_alone_has_everything_of_its_own(http: httpx.Client, keys: Keyring, public: Public) -> None:
    line = {**CODE["json"], "code": SOURCE}
    batch = http.post("/api/v1/batches", json={"submissions": [line, line]}, headers=keys["agent"]).json()
    # One with the other, and with no line of ada's, whose verdict would be told by it.
    assert batch["shared"] == 1
    (own,) = http.get("/api/v1/submissions", headers=keys["agent"]).json()["items"]
    assert own["owner"] == "agent"
    assert own["id"] not in public.submissions
    assert http.get(own["links"]["source"], headers=keys["agent"]).text == SOURCE
    assert http.delete(batch["links"]["self"], headers=keys["agent"]).json()["statuses"]["cancelled"] == 2
    assert http.get(batch["links"]["results"], headers=keys["agent"]).text.count(own["id"]) > 0
    assert own["id"] in http.get(f"{batch['links']['results']}?format=csv", headers=keys["agent"]).text
    assert http.get(f"/batches/{batch['id']}", headers=keys["agent"]).status_code == 200
    # To others its submission is as public as any.
    assert http.get(own["links"]["self"], headers=keys["bob"]).status_code == 200


def test_a_key_for_its_own_alone_names_no_parent_of_others(http: httpx.Client, keys: Keyring, public: Public) -> None:
    body = {**CODE["json"], "parent": public.submissions[0]}
    assert_problem(http.post("/api/v1/submissions", json=body, headers=keys["agent"]), 422)
    assert http.post("/api/v1/submissions", json=body, headers=keys["bob"]).status_code == 202


def test_lines_that_another_key_of_the_client_shared_are_left_out(
    http: httpx.Client, keys: Keyring, seeds: Seeds, problems: dict[str, Problem]
) -> None:
    line = {**CODE["json"], "code": SOURCE, "device": "cpu"}
    http.post("/api/v1/batches", json={"submissions": [line]}, headers=keys["ada"]).raise_for_status()
    keys.make("agent")
    batch = http.post("/api/v1/batches", json={"submissions": [line]}, headers=keys["agent"]).json()
    assert batch["shared"] == 1
    (ada,) = http.get("/api/v1/submissions", headers=keys["ada"]).json()["items"]
    seeds.evaluate(ada["id"], passed(problems["relu"]))
    for own_only, count in ((False, 1), (True, 0)):
        key = keys.make("agent", own_only=own_only)
        assert http.get(batch["links"]["results"], headers=key).text.count("\n") == count
        assert http.get(f"{batch['links']['results']}?format=csv", headers=key).text.count("\r\n") == 1 + count
        assert http.get(batch["links"]["summary"], headers=key).json()["overall"]["candidates"] == count
        compared = http.get(batch["links"]["comparison"], params={"other": batch["id"]}, headers=key).json()
        assert compared["batch"]["candidates"] == count
