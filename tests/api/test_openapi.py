"""The service keeps to its OpenAPI document, whatever is sent."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.strategies import booleans
from pydantic import TypeAdapter
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.config import SchemathesisConfig
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from api.app import create_app
from evaluator.flags import Flag, FlagKind
from evaluator.problems.problem import Problem
from kerneljudge.records import ResultRecord
from kerneljudge.terms.findings import Fault, KernelCounters, Tool
from runtime.settings import Settings
from storage.access.keys import Scope
from storage.access.visibility import Visibility
from tests.api.conftest import PROBLEMS, LiveServer
from tests.api.keyring import Keyring
from tests.api.seeds import Seeds

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    negative_data_rejection,
]
REFERENCE = (PROBLEMS / "relu" / "reference.py").read_text(encoding="utf-8")
EXAMPLES = 50
EXAMPLES_WITH_KEYS = 8
_FAULT = Fault("Invalid write", "relu", "cuda.cu", 8, 3, "x[i] = 0;", (1, 0, 0), (2, 0, 0), ("is out of bounds",), 2)


class Guarded(NamedTuple):
    """An application that asks for keys: its document, an administrator's headers, and what somebody hides in it."""

    document: Any
    administrator: dict[str, str]
    hidden: str
    private: str


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory, problems: dict[str, Problem]) -> Iterator[Guarded]:
    """The document of a served application that asks for keys."""
    config = Settings(
        data_dir=tmp_path_factory.mktemp("guarded"),
        problems_dir=PROBLEMS,
        port=0,
        auth="required",
        requests_per_min=0,
        anonymous_requests_per_min=0,
        submissions_per_day=0,
    )
    live = LiveServer(create_app(config), config)
    live.start()
    sessions = live.app.state.services.sessions
    seeds, keys = Seeds(sessions, problems), Keyring(sessions)
    keys.make("root", [Scope.ADMIN])
    passed = seeds.passed(owner="ada", visibility=Visibility.SOURCE_HIDDEN)
    private = seeds.passed(owner="ada", visibility=Visibility.PRIVATE)
    live.app.state.services.release_waiting()
    # With which key, if any, is what the test is about.
    config_without_keys = SchemathesisConfig.from_dict({"generation": {"with-security-parameters": False}})
    document = schemathesis.openapi.from_url(f"{live.url}/openapi.json", config=config_without_keys)
    yield Guarded(document, keys["root"], passed, private)
    live.stop()


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory, problems: dict[str, Problem]) -> Iterator[object]:
    """The document of a served application that has something to show."""
    data = tmp_path_factory.mktemp("openapi")
    config = Settings(data_dir=data, problems_dir=PROBLEMS, port=0, request_references=True)
    live = LiveServer(create_app(config), config)
    live.start()
    seeds = Seeds(live.app.state.services.sessions, problems)
    seeds.passed(evaluation={"flags": (Flag(FlagKind.LIBRARY_ONLY, 1, "no kernel"),)})
    seeds.submit()
    seeds.worker("w", "evaluate", "evaluate.cpu", "cpu")
    seeds.diagnosing_worker()
    diagnosed = seeds.faulted()
    seeds.diagnose(diagnosed, faults=(_FAULT,), counters=(KernelCounters("relu", duration_us=3.0),))
    seeds.request(diagnosed, Tool.RACECHECK)
    header = {"batch": {"defaults": {"problem": "relu"}, "webhook": {"url": "http://a/", "secret": "a secret"}}}
    lines = [header, {"code": "class ModelNew: ..."}, {"code": "x = 1"}, {"code": 1}]
    body = "".join(json.dumps(line) + "\n" for line in lines)
    kind = {"Content-Type": "application/x-ndjson"}
    httpx.post(f"{live.url}/api/v1/batches", content=body, headers=kind).raise_for_status()
    # Waits end at once, whatever was asked for: nobody grades what is handed in here.
    live.app.state.services.release_waiting()
    yield schemathesis.openapi.from_url(f"{live.url}/openapi.json")
    live.stop()


def graded(document: schemathesis.BaseSchema) -> str:
    """The id of a submission that is over."""
    page = document["/api/v1/submissions"]["GET"].Case(query={"verdict": "passed"}).call().json()
    return str(page["items"][0]["id"])


def batch(document: schemathesis.BaseSchema) -> str:
    """The id of a batch that has something in it."""
    page = document["/api/v1/batches"]["GET"].Case(query={"limit": 100}).call().json()
    return str(next(record["id"] for record in reversed(page["items"]) if record["webhook"]))


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=["in order", "out of order"])
def test_no_request_makes_it_fail_or_answer_outside_its_document(
    document: schemathesis.BaseSchema, mode: GenerationMode
) -> None:
    """For every operation: requests as the document allows them, and such as it does not."""
    known = [
        ("path_parameters", "submission_id", graded(document)),
        ("path_parameters", "batch_id", batch(document)),
        ("path_parameters", "problem_id", "relu"),
        ("query", "problem", "relu"),
    ]
    for result in document.get_all_operations():
        operation = result.ok()

        @settings(max_examples=EXAMPLES, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
        @given(case=operation.as_strategy(generation_mode=mode), about_known=booleans())
        def send(case: schemathesis.Case, about_known: bool) -> None:
            # What is made up is never there: half of the requests are about what is.
            # (Not of those out of order: it might put in order what was to be refused.)
            if about_known and mode is GenerationMode.POSITIVE:
                if isinstance(case.body, dict) and "source" in case.body:
                    case.body["source"] = REFERENCE
                elif isinstance(case.body, dict):
                    case.body["problem"] = "relu"
                    case.body.pop("reference", None)
                for where, name, value in known:
                    if name in (parameters := getattr(case, where) or {}):
                        parameters[name] = value
            case.call_and_validate(checks=CHECKS, timeout=30)

        if mode is GenerationMode.POSITIVE or operation.body or operation.query or operation.headers:
            send()
    if mode is GenerationMode.POSITIVE:
        page = document["/api/v1/submissions"]["GET"].Case(query={"problem": "relu", "limit": 200}).call().json()
        assert len(page["items"]) > EXAMPLES / 10, "hardly any request was in order"


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=["in order", "out of order"])
@pytest.mark.parametrize("caller", ["an administrator", "nobody"])
def test_with_keys_no_request_makes_it_fail_or_answer_outside_its_document(
    guarded: Guarded, caller: str, mode: GenerationMode
) -> None:
    """As above; whoever has no key reads what is public, and is refused everything else."""
    headers = guarded.administrator if caller == "an administrator" else {}
    known = {"submission_id": guarded.hidden, "problem_id": "relu"}
    seen: set[int] = set()
    for result in guarded.document.get_all_operations():
        operation = result.ok()

        @settings(
            max_examples=EXAMPLES_WITH_KEYS, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
        )
        @given(case=operation.as_strategy(generation_mode=mode), about_known=booleans())
        def send(case: schemathesis.Case, about_known: bool) -> None:
            if about_known and mode is GenerationMode.POSITIVE:
                for name, value in known.items():
                    if name in (parameters := case.path_parameters or {}):
                        parameters[name] = value
            seen.add(case.call_and_validate(checks=CHECKS, timeout=30, headers=headers).status_code)

        if mode is GenerationMode.POSITIVE or operation.body or operation.query or operation.headers:
            send()
    assert (401 in seen) == (caller == "nobody")
    if mode is GenerationMode.POSITIVE:
        assert {200, 404} <= seen


def test_answers_about_keys_are_as_documented(guarded: Guarded) -> None:
    keys, change = guarded.document["/api/v1/keys"], guarded.document["/api/v1/keys/{key_id}"]
    common = {"checks": CHECKS, "headers": guarded.administrator}
    made = keys["POST"].Case(body={"client": "eve", "scopes": ["read"]}, media_type="application/json")
    key_id = made.call_and_validate(**common).json()["id"]
    where = {"path_parameters": {"key_id": key_id}}
    limits = change["PATCH"].Case(**where, body={"submissions_per_day": 3}, media_type="application/json")
    assert limits.call_and_validate(**common).json()["submissions_per_day"] == 3
    assert change["DELETE"].Case(**where).call_and_validate(**common).json()["revoked"]
    assert len(keys["GET"].Case().call_and_validate(**common).json()["items"]) >= 2
    events = guarded.document["/api/v1/audit"]["GET"].Case().call_and_validate(**common).json()["items"]
    assert events[0]["action"] == "admin.request"


def test_answers_about_withdrawals_are_as_documented(guarded: Guarded) -> None:
    withdrawal = guarded.document["/api/v1/submissions/{submission_id}/withdrawal"]
    where = {"path_parameters": {"submission_id": guarded.hidden}}
    common = {"checks": CHECKS, "headers": guarded.administrator}
    put = withdrawal["PUT"].Case(**where, body={"reason": "a test"}, media_type="application/json")
    assert put.call_and_validate(**common).json()["withdrawal"]["reason"] == "a test"
    assert withdrawal["DELETE"].Case(**where).call_and_validate(**common).json()["withdrawal"] is None
    publish = guarded.document["/api/v1/submissions/{submission_id}"]["PATCH"].Case(
        path_parameters={"submission_id": guarded.private},
        body={"visibility": "source_hidden"},
        media_type="application/json",
    )
    assert publish.call_and_validate(**common).json()["visibility"] == "source_hidden"


@pytest.mark.parametrize("path", ["", "/source", "/log", "/samples", "/attempts", "/events"])
def test_answers_about_what_is_there_are_as_documented(document: schemathesis.BaseSchema, path: str) -> None:
    """The generated requests hardly ever hit on an id that exists."""
    operation = document[f"/api/v1/submissions/{{submission_id}}{path}"]["GET"]
    operation.Case(path_parameters={"submission_id": graded(document)}).call_and_validate(checks=CHECKS)


@pytest.mark.parametrize("path", ["", "/results", "/summary", "/events"])
def test_answers_about_a_batch_are_as_documented(document: schemathesis.BaseSchema, path: str) -> None:
    operation = document[f"/api/v1/batches/{{batch_id}}{path}"]["GET"]
    answer = operation.Case(path_parameters={"batch_id": batch(document)}).call_and_validate(checks=CHECKS)
    if path == "/results":
        for line in answer.text.splitlines():
            TypeAdapter(ResultRecord).validate_json(line)


def test_answers_about_a_diagnosis_are_as_documented(document: schemathesis.BaseSchema) -> None:
    query = {"verdict": "runtime_error"}
    page = document["/api/v1/submissions"]["GET"].Case(query=query).call().json()
    where = {"submission_id": page["items"][0]["id"]}
    operation = document["/api/v1/submissions/{submission_id}/diagnosis"]
    answer = operation["GET"].Case(path_parameters=where, query={"tool": "memcheck"})
    assert answer.call_and_validate(checks=CHECKS).json()["result"]["faults"][0]["thread"] == [1, 0, 0]
    single = document["/api/v1/submissions/{submission_id}"]["GET"].Case(path_parameters=where)
    assert single.call_and_validate(checks=CHECKS).json()["diagnosis"]["status"] == "pending"
    # One is under way, for the other nobody has the tool.
    for tool, status in (("racecheck", 202), ("counters", 409)):
        case = operation["POST"].Case(path_parameters=where, query={"tool": tool})
        assert case.call_and_validate(checks=CHECKS).status_code == status


def test_answers_about_problems_of_clients_are_as_documented(document: schemathesis.BaseSchema) -> None:
    every, one = document["/api/v1/problems"], document["/api/v1/problems/{problem_id}"]
    body = {"media_type": "application/json", "body": {"source": REFERENCE}}
    created = every["POST"].Case(**body).call_and_validate(checks=CHECKS).json()
    where = {"path_parameters": {"problem_id": created["id"]}}
    body["body"] = {"source": f"{REFERENCE}# changed\n", "tags": ["mine"]}
    changed = one["PUT"].Case(**where, **body).call_and_validate(checks=CHECKS).json()
    assert changed["tags"] == ["mine"]
    earlier = one["GET"].Case(**where, query={"version": created["version"]})
    assert earlier.call_and_validate(checks=CHECKS).json()["reference"] == REFERENCE
    body["body"] = {"visibility": "public", "version": created["version"]}
    assert one["PATCH"].Case(**where, **body).call_and_validate(checks=CHECKS).status_code == 409
    body["body"]["version"] = changed["version"]
    assert one["PATCH"].Case(**where, **body).call_and_validate(checks=CHECKS).json()["visibility"] == "public"
    assert one["DELETE"].Case(**where).call_and_validate(checks=CHECKS).status_code == 204
    assert one["GET"].Case(**where).call_and_validate(checks=CHECKS).json()["withdrawn_at"] is not None
    restored = document["/api/v1/problems/{problem_id}/withdrawal"]["DELETE"].Case(**where)
    assert restored.call_and_validate(checks=CHECKS).json()["withdrawn_at"] is None
    assert restored.call_and_validate(checks=CHECKS).status_code == 404


@pytest.mark.parametrize("operation", ["/api/v1/leaderboard", "/api/v1/problems/{problem_id}"])
def test_answers_about_a_problem_are_as_documented(document: schemathesis.BaseSchema, operation: str) -> None:
    for problem in ("relu", "linear_relu_divide"):
        where = {"path_parameters": {"problem_id": problem}} if "{" in operation else {"query": {"problem": problem}}
        document[operation]["GET"].Case(**where).call_and_validate(checks=CHECKS)


def test_operations_have_short_names_of_their_own_and_tags_have_descriptions(document: schemathesis.BaseSchema) -> None:
    raw = document.raw_schema
    operations = [each for path in raw["paths"].values() for each in path.values()]
    names = [operation["operationId"] for operation in operations]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch("[a-z]+(_[a-z]+){0,2}", name) for name in names), names
    used = {tag for operation in operations for tag in operation["tags"]}
    assert {tag["name"] for tag in raw["tags"] if tag["description"]} == used
