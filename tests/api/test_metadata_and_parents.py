"""Metadata of users and parents of submissions, wherever a submission is handed in or shown."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import httpx
import pytest

from api.app import create_app
from evaluator.problems.problem import Problem
from runtime.settings import Settings
from storage.clock import database_now
from storage.grading.verification import checks_of, request_verification
from tests.api.conftest import Post, assert_problem, fields
from tests.api.inmemory import running
from tests.api.seeds import SOURCE, Seeds, passed

METADATA = {"z": 1, "a": [1.0, {"prompt": "ünïcode <b>"}, None], "model": "m-7b", "step": 10**20}
NDJSON = {"Content-Type": "application/x-ndjson"}


def ndjson(*lines: object) -> bytes:
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


def results(http: httpx.Client, batch: dict[str, Any]) -> dict[int, dict[str, Any]]:
    text = http.get(batch["links"]["results"]).text
    return {each["line"]: each for each in map(json.loads, text.splitlines())}


def test_both_come_back_as_they_were_given(settings: Settings, problems: dict[str, Problem]) -> None:
    app = create_app(settings)
    with running(app) as transport, httpx.Client(transport=transport, base_url="http://testserver") as http:
        parent = Seeds(app.state.services.sessions, problems).passed()
        body = {"problem": "relu", "code": SOURCE, "metadata": METADATA, "parent": parent}
        answer = http.post("/api/v1/submissions", json=body)
        assert answer.status_code == 202, answer.text
        for record in (answer.json(), http.get(answer.json()["links"]["self"]).json()):
            assert (record["metadata"], record["parent"]) == (METADATA, parent)
            # The order of the names as well.
            assert list(record["metadata"]) == list(METADATA)
        plain = http.post("/api/v1/submissions", json={"problem": "relu", "code": SOURCE}).json()
        assert (plain["metadata"], plain["parent"]) == (None, None)
        listed = http.get("/api/v1/submissions", params={"parent": parent}).json()["items"]
        assert [(each["id"], each["metadata"]) for each in listed] == [(answer.json()["id"], METADATA)]
        assert http.get("/api/v1/submissions", params={"parent": plain["id"]}).json()["items"] == []


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"a": "' + 4096 * "x" + '"}', "4096 are allowed"),
        ('{"a": "\\u0000"}', "NUL"),
        ('{"a": "\\ud800"}', "surrogate"),
        ('{"a": NaN}', "finite"),
        ('{"a": ' + 20 * "[" + 20 * "]" + "}", "inside each other"),
        ("[]", "dictionary"),
        ('"text"', "dictionary"),
    ],
)
def test_metadata_that_cannot_be_kept_is_refused_by_its_name(http: httpx.Client, content: str, message: str) -> None:
    body = f'{{"problem": "relu", "code": "class ModelNew: ...", "metadata": {content}}}'
    answer = http.post("/api/v1/submissions", content=body, headers={"Content-Type": "application/json"})
    problem = assert_problem(answer, 422)
    assert fields(problem) == {"metadata"}
    assert message in answer.text
    line = http.post("/api/v1/batches", content=body.encode() + b"\n", headers=NDJSON).json()
    assert (line["items"], line["errors_total"]) == (0, 1)
    assert line["errors"][0]["message"].startswith("metadata: ")


def test_a_parent_that_does_not_exist_is_refused(http: httpx.Client, post: Post) -> None:
    answer = post(parent="sub_none")
    assert fields(assert_problem(answer, 422)) == {"parent"}
    assert http.get("/api/v1/submissions").json()["items"] == []


def test_another_metadata_or_parent_is_another_content_for_an_idempotency_key(post: Post, seeds: Seeds) -> None:
    key, parent = {"Idempotency-Key": "k"}, seeds.passed()
    first = post(headers=key, metadata={"a": 1, "b": 2}, parent=parent)
    assert post(headers=key, metadata={"b": 2, "a": 1}, parent=parent).json()["id"] == first.json()["id"]
    assert_problem(post(headers=key, metadata={"a": 1}, parent=parent), 409)
    assert_problem(post(headers=key, metadata={"a": 1, "b": 2}), 409)


def test_lines_that_share_a_grading_keep_their_own(
    http: httpx.Client, seeds: Seeds, problems: dict[str, Problem]
) -> None:
    parents = [seeds.passed(), seeds.passed()]
    header = {"batch": {"defaults": {"problem": "relu", "device": "cpu", "metadata": {"of": "all"}}}}
    lines = [
        {"code": "class ModelNew: ...\n#", "metadata": {"line": 2}, "parent": parents[0]},
        {"code": "class ModelNew: ...\n#", "metadata": {"line": 3}, "parent": parents[1]},
        {"code": "class ModelNew: ...\n#"},
        {"code": "class ModelNew: ...\n#", "metadata": None},
        {"code": "class ModelNew: ...\n#", "parent": "sub_none"},
    ]
    batch = http.post("/api/v1/batches", content=ndjson(header, *lines), headers=NDJSON).json()
    assert (batch["items"], batch["shared"]) == (4, 3)
    assert batch["errors"] == [{"line": 6, "message": "parent: no submission 'sub_none'"}]
    (waiting,) = http.get("/api/v1/submissions", params={"status": "queued"}).json()["items"]
    seeds.evaluate(waiting["id"], passed(problems["relu"]))
    found = results(http, batch)
    assert {line: (each["metadata"], each["parent"]) for line, each in found.items()} == {
        2: ({"line": 2}, parents[0]),
        3: ({"line": 3}, parents[1]),
        4: ({"of": "all"}, None),
        5: (None, None),
    }
    # The submission itself has those of its first line, and is a child of both.
    assert {json.dumps(each["submission"]["metadata"]) for each in found.values()} == {'{"line": 2}'}
    for parent in parents:
        children = http.get("/api/v1/submissions", params={"parent": parent}).json()["items"]
        assert [each["id"] for each in children] == [waiting["id"]]
    table = http.get(batch["links"]["results"], params={"format": "csv"}).text
    rows = list(csv.DictReader(io.StringIO(table, newline="")))
    assert [row["parent"] for row in rows] == [*parents, "", ""]
    assert [json.loads(row["metadata"] or "null") for row in rows] == [{"line": 2}, {"line": 3}, {"of": "all"}, None]


def test_a_page_shows_the_parent_the_children_and_the_metadata(http: httpx.Client, seeds: Seeds) -> None:
    parent = seeds.passed(label="first")
    child = seeds.passed(label="second", parent=parent, metadata={"<i>": "<b>", "list": [1, 2]})
    page = http.get(f"/submissions/{child}").text
    assert f'Derived from <a href="/submissions/{parent}">' in page
    assert "&lt;i&gt;" in page
    assert "&lt;b&gt;" in page
    assert "Derived from it" not in page
    page = http.get(f"/submissions/{parent}").text
    _, _, children = page.partition("Derived from it")
    assert f'href="/submissions/{child}"' in children
    listed = http.get("/submissions", params={"parent": parent}).text
    assert f'href="/submissions/{child}"' in listed
    assert f'href="/submissions/{parent}"' not in listed


def test_a_reevaluation_has_neither(seeds: Seeds, http: httpx.Client, problems: dict[str, Problem]) -> None:
    parent = seeds.passed()
    record = seeds.passed(parent=parent, metadata={"a": 1}, evaluation={"speedup": 3.0})
    with seeds.sessions.begin() as session:
        request_verification(session, record, database_now(session))
        (check,) = checks_of(session, record)
        assert (check.user_metadata, check.parent) == (None, None)
    children = http.get("/api/v1/submissions", params={"parent": parent}).json()["items"]
    assert [each["id"] for each in children] == [record]
