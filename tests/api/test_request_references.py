"""References that come with requests: taken only where they are allowed, and shown to no other client."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from api.services.container import Services
from runtime.settings import Settings
from storage.models import StoredProblem
from tests.api.conftest import PROBLEMS
from tests.api.outline import page
from tests.api.seeds import Seeds

_CANDIDATE = "class ModelNew: ...\n"
_REFERENCE = (PROBLEMS / "relu" / "reference.py").read_text(encoding="utf-8")


@pytest.fixture
def api_settings(tmp_path: Path) -> Settings:
    """An installation that takes references."""
    return Settings(data_dir=tmp_path / "data", problems_dir=PROBLEMS, port=0, request_references=True)


def _submit(http: httpx.Client, source: str = _REFERENCE, **changes: Any) -> httpx.Response:
    body = {"reference": {"source": source}, "code": _CANDIDATE, "device": "cpu", **changes}
    return http.post("/api/v1/submissions", json=body)


def test_a_reference_becomes_a_problem_that_is_in_no_list(http: httpx.Client, seeds: Seeds) -> None:
    first, again = _submit(http), _submit(http)
    assert first.status_code == 202, first.text
    record = first.json()
    assert record["problem"].startswith("reference_")
    assert record["size"] == "full"
    assert again.json()["problem"] == record["problem"]
    assert again.json()["id"] != record["id"]
    assert http.get(record["links"]["reference"]).text == _REFERENCE
    listed = {each["id"] for each in http.get("/api/v1/problems").json()["items"]}
    assert record["problem"] not in listed
    assert http.get(f"/api/v1/problems/{record['problem']}").status_code == 404
    claim = seeds.claim_build(record["id"])
    assert claim.problem.source == _REFERENCE


def test_the_policies_of_a_reference_are_those_of_the_request(http: httpx.Client, seeds: Seeds) -> None:
    policies = {"tolerance": {"atol": 0.01, "rtol": 0.02}, "gradient_policy": "none", "row_independent": True}
    reference = {"source": _REFERENCE, "input_domain": "as_written", **policies}
    record = _submit(http, reference=reference, precision="bfloat16").json()
    problem = seeds.claim_build(record["id"]).problem
    assert (problem.tolerance("bfloat16").atol, problem.tolerance("bfloat16").rtol) == (0.01, 0.02)
    assert (problem.gradient_policy, problem.input_domain, problem.row_independent) == ("none", "as_written", True)
    assert (problem.dtype, record["precision"]) == ("bfloat16", "bfloat16")


def test_the_page_of_its_submission_leads_to_the_reference(http: httpx.Client) -> None:
    record = _submit(http).json()
    html = page(http, f"/submissions/{record['id']}")
    assert record["links"]["reference"] in html
    assert f"/problems/{record['problem']}" not in html
    assert f"/problems/{record['problem']}" not in page(http, "/submissions")


def test_lines_of_a_batch_bring_their_own_and_each_is_stored_once(http: httpx.Client, services: Services) -> None:
    sources = [f"{_REFERENCE}\n# {number % 5}\n" for number in range(20)]
    lines = [{"batch": {"defaults": {"problem": "relu", "device": "cpu"}}}, {"code": _CANDIDATE}]
    lines += [
        {"reference": {"source": source}, "code": f"{_CANDIDATE}# {number}\n"} for number, source in enumerate(sources)
    ]
    body = "\n".join(map(json.dumps, lines))
    answer = http.post("/api/v1/batches", content=body, headers={"content-type": "application/x-ndjson"})
    assert answer.status_code == 202, answer.text
    results = [
        json.loads(line) for line in http.get(f"/api/v1/batches/{answer.json()['id']}/results").text.splitlines()
    ]
    with services.sessions() as session:
        stored = [row.id for row in session.query(StoredProblem) if row.id.startswith("reference_")]
    assert len(stored) == 5
    waiting = http.get("/api/v1/submissions", params={"limit": 100}).json()["items"]
    assert len(results) + len(waiting) >= 21
    assert {each["problem"] for each in waiting} == {"relu", *stored}


@pytest.mark.parametrize(
    ("changes", "field", "said"),
    [
        ({"problem": "relu"}, "reference", "exactly one of problem and reference"),
        ({"reference": None}, "problem", "exactly one of problem and reference"),
        ({"reference": {"source": "x = 1"}}, "reference.source", "it does not define Model"),
        ({"reference": {"source": "class ("}}, "reference.source", "it does not parse"),
        ({"reference": {}}, "reference.source", "required"),
        ({"reference": {"source": _REFERENCE, "sizes": {}}}, "reference.sizes", "not permitted"),
        ({"reference": {"source": _REFERENCE, "tolerance": {"atol": 2, "rtol": 0}}}, "reference.tolerance.atol", ""),
        ({"size": "smoke"}, "size", "has the sizes full"),
    ],
)
def test_a_bad_reference_is_refused_and_its_field_named(
    http: httpx.Client, changes: dict[str, Any], field: str, said: str
) -> None:
    answer = _submit(http, **changes)
    assert answer.status_code == 422
    found = {error["field"]: error["message"] for error in answer.json()["errors"]}
    assert field in found, found
    assert said in found[field]


def test_a_service_takes_none_unless_it_says_so(tmp_path: Path, services: Services, http: httpx.Client) -> None:
    services.settings = services.settings.model_copy(update={"request_references": False})
    answer = _submit(http)
    assert answer.status_code == 422
    assert "KERNELJUDGE_REQUEST_REFERENCES" in answer.json()["errors"][0]["message"]
    with services.sessions() as session:
        assert not [row for row in session.query(StoredProblem) if row.id.startswith("reference_")]


def _form(http: httpx.Client, **fields: str) -> httpx.Response:
    form = {"problem": "relu", "text": _CANDIDATE, "device": "cpu", **fields}
    return http.post("/submissions", data=form, headers={"Accept": "text/html"})


def test_the_form_takes_one_in_place_of_its_problem(http: httpx.Client) -> None:
    assert 'name="reference"' in page(http, "/")
    assert 'name="reference"' not in page(http, "/problems/relu")
    answer = _form(http, reference=_REFERENCE.replace("\n", "\r\n"))
    assert answer.status_code == 303, answer.text
    record = http.get("/api/v1" + answer.headers["location"]).json()
    assert record["problem"] == _submit(http).json()["problem"]
    assert http.get("/api/v1" + _form(http, reference=" \n").headers["location"]).json()["problem"] == "relu"
    refused = _form(http, reference="x = 1  # no model")
    assert refused.status_code == 422
    assert "does not define Model" in refused.text
    assert "x = 1  # no model</textarea>" in refused.text


def test_the_form_has_no_field_for_one_where_none_is_taken(services: Services, http: httpx.Client) -> None:
    services.settings = services.settings.model_copy(update={"request_references": False})
    assert 'name="reference"' not in page(http, "/")
    assert _form(http, reference=_REFERENCE).status_code == 422
