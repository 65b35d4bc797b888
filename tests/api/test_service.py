"""Health, metrics, workers, problems, and what is around every request."""

from __future__ import annotations

import logging
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI

from api.app import create_app
from api.services.container import Services
from evaluator.errors import ProblemError
from runtime.settings import Settings
from tests.api.conftest import KNOWN, PROBLEM_IDS, LiveServer, Post, assert_problem, fields
from tests.api.inmemory import AppTransport, running
from tests.api.seeds import Seeds


def test_it_is_healthy_and_ready(http: httpx.Client) -> None:
    assert http.get("/healthz").json()["status"] == "ok"
    assert http.get("/readyz").json() == {"status": "ok", "problems": len(PROBLEM_IDS), "degraded": []}


def test_without_its_database_it_is_alive_but_not_ready(
    http: httpx.Client, services: Services, api_settings: Settings
) -> None:
    services.engine.dispose()
    services.read_engine.dispose()
    api_settings.data_dir.rename(api_settings.data_dir.with_name("elsewhere"))
    assert http.get("/healthz").status_code == 200
    for path in ("/readyz", "/api/v1/submissions", "/api/v1/workers", "/metrics"):
        answer = http.get(path)
        assert_problem(answer, 503)
        assert answer.headers["retry-after"] == "1"
    assert_problem(http.post("/api/v1/submissions", json={"problem": "relu", "code": "class ModelNew: ..."}), 503)
    page = http.get("/", headers={"Accept": "text/html"})
    assert (page.status_code, page.headers["content-type"]) == (503, "text/html; charset=utf-8")


def test_a_folder_without_problems_stops_the_start(api_settings: Settings) -> None:
    empty = api_settings.data_dir.with_name("empty")
    empty.mkdir()
    app = create_app(api_settings.model_copy(update={"problems_dir": empty}))
    with pytest.raises(ProblemError, match="no problem in"), running(app):
        pass


def test_problems_are_listed_without_and_shown_with_their_reference(http: httpx.Client) -> None:
    items = http.get("/api/v1/problems").json()["items"]
    assert [item["id"] for item in items] == PROBLEM_IDS
    assert all("reference" not in item for item in items)
    relu = http.get("/api/v1/problems/relu").json()
    assert "class Model(nn.Module)" in relu["reference"]
    assert relu["sizes"]["full"] == {"batch_size": 4096, "dim": 393216}
    assert relu["tolerances"]["float32"] == {"atol": 1e-4, "rtol": 1e-4}
    assert relu["kernelbench"] == {"level": 1, "problem_id": 19, "name": "19_ReLU"}


def test_an_unknown_problem_is_not_found(http: httpx.Client) -> None:
    assert KNOWN in str(assert_problem(http.get("/api/v1/problems/%00"), 404)["detail"])


def test_workers_say_what_they_take(http: httpx.Client, seeds: Seeds) -> None:
    assert http.get("/api/v1/workers").json() == {"items": []}
    seeds.worker("w1", "evaluate", "evaluate.cpu", "cpu", device_name="a processor")
    (worker,) = http.get("/api/v1/workers").json()["items"]
    assert (worker["id"], worker["alive"], worker["queues"]) == ("w1", True, ["evaluate.cpu"])
    assert worker["capabilities"] == {"device_name": "a processor"}


def test_metrics_count_submissions_queues_workers_and_requests(http: httpx.Client, seeds: Seeds) -> None:
    seeds.passed()
    seeds.submit()
    seeds.submit(device="cuda")
    seeds.worker("w1", "build", "build", None)
    seeds.diagnosing_worker()
    seeds.faulted()
    http.get("/api/v1/submissions/none")
    answer = http.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    lines = answer.text.splitlines()
    for line in (
        'kerneljudge_submissions{status="done",verdict="passed"} 1.0',
        'kerneljudge_submissions{status="queued",verdict=""} 2.0',
        'kerneljudge_queue_depth{queue="build"} 2.0',
        'kerneljudge_queue_depth{queue="evaluate.cuda"} 0.0',
        'kerneljudge_queue_depth{queue="diagnose.compute-sanitizer"} 1.0',
        'kerneljudge_queue_depth{queue="diagnose.ncu"} 0.0',
        'kerneljudge_workers_alive{queue="diagnose.compute-sanitizer"} 1.0',
        'kerneljudge_workers_alive{queue="build"} 1.0',
        'kerneljudge_workers_alive{queue="evaluate.cpu"} 0.0',
        'kerneljudge_http_requests_total{method="GET",route="/api/v1/submissions/{submission_id}",status="404"} 1.0',
    ):
        assert line in lines, line
    assert "none" not in re.findall(r'route="[^"]*none', answer.text)


def test_two_applications_in_a_process_count_apart(app: FastAPI, api_settings: Settings) -> None:
    for each in (app, create_app(api_settings)):
        with running(each) as transport, httpx.Client(transport=transport, base_url="http://testserver") as client:
            client.get("/healthz")
            line = 'kerneljudge_http_requests_total{method="GET",route="/healthz",status="200"} 1.0'
            assert line in client.get("/metrics").text


def test_every_answer_carries_a_request_id_and_safe_headers(http: httpx.Client) -> None:
    for path in ("/", "/healthz", "/nothing", "/static/style.css", "/api/v1/problems"):
        headers = http.get(path).headers
        assert headers["x-request-id"]
        assert headers["x-content-type-options"] == "nosniff"
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "script-src 'self';" in policy


def test_a_given_request_id_is_taken_over_if_it_is_harmless(http: httpx.Client) -> None:
    assert http.get("/healthz", headers={"X-Request-ID": "trace-1"}).headers["x-request-id"] == "trace-1"
    for harmful in ("a b", "x" * 65, "<i>"):
        assert http.get("/healthz", headers={"X-Request-ID": harmful}).headers["x-request-id"] != harmful


def test_a_request_is_one_line_in_the_log_whatever_its_path(
    http: httpx.Client, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "api.access"):
        http.get("/a%0AFAKE%20LINE")
    (record,) = [record for record in caplog.records if record.name == "api.access"]
    assert "\n" not in record.getMessage()
    assert "GET /a%0AFAKE%20LINE 404" in record.getMessage()


def test_what_nobody_caught_is_a_500_that_tells_nothing_but_its_id(
    app: FastAPI, api_settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    def broken() -> None:
        raise ZeroDivisionError("a secret")

    app.get("/broken")(broken)
    with running(app) as transport, httpx.Client(transport=transport, base_url="http://testserver") as client:
        answer = client.get("/broken")
    assert "secret" not in answer.text
    assert_problem(answer, 500)
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert any("unhandled error" in record.getMessage() and record.exc_info for record in caplog.records)


def test_what_has_no_route_is_problem_details(http: httpx.Client) -> None:
    assert_problem(http.get("/api/v1/nothing"), 404)
    answer = http.put("/api/v1/submissions")
    assert_problem(answer, 405)
    assert answer.headers["allow"] == "GET, POST"
    assert http.put("/api/v1/submissions/x").headers["allow"] == "DELETE, GET, PATCH"
    assert http.post("/").headers["allow"] == "GET"


def test_a_body_within_the_limit_passes_and_one_byte_more_does_not(transport: AppTransport, services: Services) -> None:
    limit = services.settings.max_body_bytes
    head, tail = b'{"problem": "relu", "code": "class ModelNew: ...', b'"}'
    headers = {"Content-Type": "application/json"}
    with httpx.Client(transport=transport, base_url="http://testserver") as client:
        for size, status in ((limit, 202), (limit + 1, 413)):
            body = head + b" " * (size - len(head) - len(tail)) + tail
            answer = client.post("/api/v1/submissions", content=body, headers=headers)
            assert answer.status_code == status
    assert str(limit) in str(assert_problem(answer, 413)["detail"])


def test_a_body_without_a_length_is_limited_as_well(live: LiveServer, api_settings: Settings) -> None:
    def chunks() -> Iterator[bytes]:
        yield b'{"problem": "relu", "code": "'
        for _ in range(api_settings.max_body_bytes // 100_000 + 1):
            yield b" " * 100_000
        yield b'"}'

    headers = {"Content-Type": "application/json"}
    answer = httpx.post(f"{live.url}/api/v1/submissions", content=chunks(), headers=headers)
    assert_problem(answer, 413)


@pytest.mark.parametrize("length", ["9" * 30, "-1", "many"])
def test_a_length_that_is_none_is_no_fault(live: LiveServer, length: str) -> None:
    url = httpx.URL(live.url)
    with socket.create_connection((url.host, url.port), timeout=10) as connection:
        head = f"POST /api/v1/submissions HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n"
        connection.sendall(head.encode() + b"{}")
        status = connection.recv(4096).split()[1]
    assert status in (b"400", b"413")


def test_source_that_is_too_large_to_grade_is_a_verdict(post: Post) -> None:
    record = post(code="#" * 1_100_000).json()
    assert record["verdict"] == "invalid_source"
    assert "too large" in record["message"]


def test_the_openapi_document_describes_errors_as_problem_details(http: httpx.Client) -> None:
    document = http.get("/openapi.json").json()
    assert "HTTPValidationError" not in document["components"]["schemas"]
    responses = document["paths"]["/api/v1/submissions"]["post"]["responses"]
    assert set(responses) == {"202", "400", "401", "403", "404", "409", "413", "422", "429", "503"}
    schema = responses["422"]["content"]["application/problem+json"]["schema"]
    assert schema == {"$ref": "#/components/schemas/ProblemDetails"}
    assert {"type", "title", "status", "detail"} <= set(
        document["components"]["schemas"]["ProblemDetails"]["properties"]
    )
    assert not [path for path in document["paths"] if "{" in path and path.startswith("/problems")]


def test_defaults_are_told_in_the_openapi_document(http: httpx.Client) -> None:
    properties = http.get("/openapi.json").json()["components"]["schemas"]["SubmissionRequest"]["properties"]
    assert "`full` on `cuda`; on `cpu` `smoke`" in properties["size"]["description"]
    assert "worker with a CUDA device is alive" in properties["device"]["description"]


def test_docstrings_of_records_are_in_the_openapi_document(http: httpx.Client) -> None:
    schemas = http.get("/openapi.json").json()["components"]["schemas"]
    assert schemas["ResultRecord"]["properties"]["cancelled"]["description"].startswith("The batch was cancelled")
    ranked = schemas["ProblemSummary"]["properties"]["ranked"]["description"]
    assert ranked.startswith("Whether it has leaderboards")
    assert schemas["ProblemRecord"]["properties"]["ranked"]["description"] == ranked


def test_names_and_times_of_records_are_documented_as_such(http: httpx.Client) -> None:
    schemas = http.get("/openapi.json").json()["components"]["schemas"]
    record = schemas["SubmissionRecord"]["properties"]
    assert record["status"] == {"$ref": "#/components/schemas/Status"}
    assert "passed" in schemas["Verdict"]["enum"]
    assert schemas["TimelineRecord"]["properties"]["submitted"]["format"] == "date-time"


def test_a_bad_filter_of_a_page_is_an_error_page(http: httpx.Client) -> None:
    answer = http.get("/", params={"track": "<script>"}, headers={"Accept": "text/html"})
    assert (answer.status_code, answer.headers["content-type"]) == (422, "text/html; charset=utf-8")
    assert "<script>" not in answer.text
    assert fields(assert_problem(http.get("/", params={"track": "x"}), 422)) == {"track"}


def test_a_setting_that_cannot_be_used_is_one_line_and_status_2(tmp_path: Path) -> None:
    environment = {**os.environ, "KERNELJUDGE_DATA_DIR": str(tmp_path), "KERNELJUDGE_PORT": "high"}
    argv = [sys.executable, "-m", "api"]
    ended = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 2
    assert "KERNELJUDGE_PORT=high" in ended.stderr
    assert "Traceback" not in ended.stderr
